from typing import Any

from congruence.document import Document, Figure
from congruence.report.figures.batches import condition_differences as condition_differences
from congruence.report.figures.batches import feature_profiles as feature_profiles
from congruence.report.figures.components import component_agreement as component_agreement
from congruence.report.figures.components import component_curve as component_curve
from congruence.report.figures.components import component_histogram as component_histogram
from congruence.report.figures.components import component_loadings as component_loadings
from congruence.report.figures.components import component_negentropy as component_negentropy
from congruence.report.figures.components import solver_convergence as solver_convergence
from congruence.report.figures.components import variance_spectrum as variance_spectrum
from congruence.report.figures.curves import learning_curve as learning_curve
from congruence.report.figures.curves import matching_residuals as matching_residuals
from congruence.report.figures.curves import moved_curve as moved_curve
from congruence.report.figures.curves import recall_by_size as recall_by_size
from congruence.report.figures.curves import training_curves as training_curves
from congruence.report.figures.decoders import block_overlap as block_overlap
from congruence.report.figures.decoders import latent_graph as latent_graph
from congruence.report.figures.decoders import part_curve as part_curve
from congruence.report.figures.decoders import stretch_histogram as stretch_histogram
from congruence.report.figures.decoders import stretch_spectrum as stretch_spectrum
from congruence.report.figures.evaluation import factor_code_map as factor_code_map
from congruence.report.figures.evaluation import factor_scatter as factor_scatter
from congruence.report.figures.evaluation import score_range as score_range
from congruence.report.figures.features import cosine_histogram as cosine_histogram
from congruence.report.figures.features import share_curve as share_curve
from congruence.report.figures.heat_maps import heat_map as heat_map
from congruence.report.figures.heat_maps import layer_picture as layer_picture
from congruence.report.figures.pairs import error_histogram as error_histogram
from congruence.report.figures.pairs import gains as gains
from congruence.report.figures.pairs import groups_ladder as groups_ladder
from congruence.report.figures.pairs import ladder as ladder
from congruence.report.figures.pairs import planes as planes
from congruence.report.figures.spaces import latent_space as latent_space
from congruence.report.figures.spaces import latent_spaces as latent_spaces
from congruence.report.figures.svg import Drawing

def drawing(figure: Figure) -> Drawing: ...
def plot_main(document: Document, ax: Any = None) -> Any: ...
