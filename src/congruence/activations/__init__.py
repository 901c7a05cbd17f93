"""Activations of torch and transformers models, written as embedding tables."""

from congruence.activations.extraction import Extracted as Extracted
from congruence.activations.extraction import extract as extract
from congruence.activations.hub import HubModel as HubModel
from congruence.activations.hub import find_model as find_model
from congruence.activations.inputs import Inputs as Inputs
from congruence.activations.inputs import array_inputs as array_inputs
from congruence.activations.inputs import image_inputs as image_inputs
from congruence.activations.inputs import text_inputs as text_inputs
from congruence.activations.layers import Layer as Layer
from congruence.activations.layers import list_layers as list_layers
from congruence.activations.pretrained import Pretrained as Pretrained
from congruence.activations.pretrained import load_pretrained as load_pretrained
