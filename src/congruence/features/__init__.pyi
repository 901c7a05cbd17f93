from congruence.features._match import match_features as match_features
from congruence.features.dictionary import Dictionary as Dictionary
from congruence.features.dictionary import Encoder as Encoder
from congruence.features.dictionary import read_dictionary as read_dictionary
from congruence.features.feature_match import FeatureMatch as FeatureMatch
from congruence.features.feature_match import PairMatch as PairMatch
