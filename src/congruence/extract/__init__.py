"""Activations of torch and transformers models, written as embedding tables."""

from congruence.extract.extraction import Extracted as Extracted
from congruence.extract.extraction import extract as extract
from congruence.extract.hub import HubModel as HubModel
from congruence.extract.hub import find_model as find_model
from congruence.extract.inputs import Inputs as Inputs
from congruence.extract.inputs import array_inputs as array_inputs
from congruence.extract.inputs import image_inputs as image_inputs
from congruence.extract.inputs import text_inputs as text_inputs
from congruence.extract.layers import Layer as Layer
from congruence.extract.layers import list_layers as list_layers
from congruence.extract.pretrained import Pretrained as Pretrained
from congruence.extract.pretrained import load_pretrained as load_pretrained
