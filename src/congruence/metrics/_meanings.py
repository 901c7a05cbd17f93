"""Names and meanings of scores and metrics, for pages and documentation."""

from __future__ import annotations

SCORES = {  # the name of a score, and the question it answers
    "infom": ("InfoM", "is each code informative about one factor only?"),
    "infoe": ("InfoE", "does a linear readout of all codes give the factors?"),
    "infoc": ("InfoC", "is each factor encoded by one code only?"),
    "dci_disentanglement": ("DCI disentanglement", "is each code used for one factor only?"),
    "dci_completeness": ("DCI completeness", "is one code enough to predict each factor?"),
    "dci_informativeness": ("DCI informativeness", "can trees predict the factors from all codes?"),
    "mig": ("MIG", "how far is the best code for a factor ahead of the next?"),
    "modularity": ("Modularity", "is each code informative about one factor only (binned)?"),
    "sap": ("SAP", "how much better does the best single code predict than the next?"),
    "explicitness": ("Explicitness", "can a linear classifier separate the classes?"),
    "beta_vae": ("BetaVAE score", "can a classifier see which factor pairs of rows share?"),
    "factor_vae": ("FactorVAE score", "does the code with the least variance reveal which factor was fixed?"),
    "irs": ("IRS", "does a code stay constant while other factors change?"),
    "mcc": ("MCC", "how well do codes correlate with factors, matched one to one?"),
    "mcc_spearman": ("MCC, ranks", "the same for ranks, so that any increasing function is allowed"),
    "mcc_weak": ("MCC, weak", "the same after the best linear map"),
    "r2_linear": ("R², linear", "how much of the factors does a linear regression on all codes explain?"),
    "r2_nonlinear": ("R², nonlinear", "how much does a nonlinear regression on all codes explain?"),
    "sis": ("SIS", "does each slot encode one object and nothing about the others?"),
    "block_score": ("Block score", "is each group of factors a function of one block of codes?"),
    "total_correlation": ("Total correlation", "how dependent are the codes, as Gaussians?"),
    "wasserstein_correlation": ("Wasserstein correlation", "how far are they from independent codes, as Gaussians?"),
    "wasserstein_correlation_norm": ("Wasserstein correlation, share", "the same as a share of the variance"),
    "mean_mutual_information": ("Mean information", "how informative is one code about another?"),
    "structural_permutation": ("Nearness, permutation", "how far from the factors, up to order and sign?"),
    "structural_rigid": ("Nearness, rigid", "how far from the factors, up to a rotation?"),
    "structural_similarity": ("Nearness, similarity", "how far from the factors, up to a rotation and a scale?"),
    "structural_linear": ("Nearness, linear", "how far from the factors, up to any linear map?"),
}

METRIC_MEANINGS = {  # the name of a metric, and what its scores measure together
    "infomec": (
        "InfoMEC",
        "how information is distributed: each code should be informative about one factor only (InfoM), each factor be "
        "encoded by one code only (InfoC), and a linear readout of all codes should give it (InfoE).",
    ),
    "dci": (
        "DCI",
        "trees predict the factors; the score is which codes they use: each code for one factor (disentanglement), one "
        "code for each factor (completeness), and how well they predict (informativeness).",
    ),
    "mig": (
        "MIG",
        "whether one code, and no other, encodes a factor. It does not see what else the code encodes.",
    ),
    "modularity": ("Modularity", "whether a code encodes one factor only; codes that encode nothing count 0."),
    "sap": ("SAP", "how much worse a factor is predicted by the second best single code than by the best."),
    "explicitness": (
        "Explicitness",
        "whether the classes are linearly separable; 0.5 is chance, and a rotation does not change it.",
    ),
    "beta_vae": (
        "BetaVAE",
        "a linear classifier predicts which factor pairs of rows share; rotated codes can score 1 too.",
    ),
    "factor_vae": ("FactorVAE", "the code with the least variance predicts which factor was fixed."),
    "irs": ("IRS", "whether a code stays constant when only factors other than its own change."),
    "mcc": (
        "MCC",
        "how well factors and codes correlate when they are matched one to one; the weak one allows a linear map "
        "first, so a rotation does not change it.",
    ),
    "regression": ("R²", "whether all codes together contain the factors; a rotation does not change it."),
    "sis": ("SIS", "whether each slot of codes encodes one object, and no other slot anything of it."),
    "block_score": ("Block score", "whether each group of factors is a function of one block of codes."),
    "unsupervised": (
        "Without factors",
        "how dependent the codes are on each other; independent codes need not be the factors.",
    ),
    "structural_nearness": (
        "Structural nearness",
        "how far the codes are from the factors after the best map of a group, as a share of the factors’ diameter.",
    ),
}

MATRICES = {  # the title of a matrix of factors and codes, and what a cell of it means
    "nmi": ("Information", "Normalised information of the code about the factor, from 0 to 1."),
    "importance": ("Importance", "How much trees used the code to predict the factor; rows sum to 1."),
    "correlation": ("Correlation", "Pearson correlation of code and factor, from −1 to 1."),
}
