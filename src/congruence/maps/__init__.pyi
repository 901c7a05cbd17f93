from congruence.maps._diameter import Diameter as Diameter
from congruence.maps._diameter import diameter as diameter
from congruence.maps._names import GROUPS as GROUPS
from congruence.maps.groups import Map as Map
from congruence.maps.groups import fit_map as fit_map
from congruence.maps.groups import load_map as load_map
from congruence.maps.nearness import HeldOut as HeldOut
from congruence.maps.nearness import Nearness as Nearness
