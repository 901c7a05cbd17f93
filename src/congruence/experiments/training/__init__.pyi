from congruence.experiments.models.own_models import Trainable as Trainable
from congruence.experiments.training._train import train as train
from congruence.experiments.training._train_model import load_model as load_model
from congruence.experiments.training._train_model import train_model as train_model
from congruence.experiments.training.collapse import posterior_collapse as posterior_collapse
from congruence.experiments.training.settings import Training as Training
