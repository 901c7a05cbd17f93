"""What each metric of codes against factors is called, and what it asks, in one sentence each."""

from __future__ import annotations

SCORES = {  # what a score is called, and its question
    "infom": ("InfoM", "does each code tell about one factor only?"),
    "infoe": ("InfoE", "does a linear readout of all codes give the factors?"),
    "infoc": ("InfoC", "is each factor told by one code only?"),
    "dci_disentanglement": ("DCI disentanglement", "is each code used for one factor only?"),
    "dci_completeness": ("DCI completeness", "does one code alone serve each factor?"),
    "dci_informativeness": ("DCI informativeness", "can trees predict the factors from all codes?"),
    "mig": ("MIG", "how far is the best code for a factor ahead of the next?"),
    "modularity": ("Modularity", "does each code tell about one factor only (binned)?"),
    "sap": ("SAP", "how much better does the best single code predict than the next?"),
    "explicitness": ("Explicitness", "can a linear classifier tell the classes apart?"),
    "beta_vae": ("BetaVAE score", "can one tell which factor pairs of rows share?"),
    "factor_vae": ("FactorVAE score", "does the code that varies least tell which factor was held still?"),
    "irs": ("IRS", "does a code stay put while other factors change?"),
    "mcc": ("MCC", "how well do codes correlate with factors, matched one to one?"),
    "mcc_spearman": ("MCC, ranks", "the same of ranks, so that any increasing function will do"),
    "mcc_weak": ("MCC, weak", "the same after the best linear map"),
    "r2_linear": ("R², linear", "how much of the factors does a linear regression on all codes explain?"),
    "r2_nonlinear": ("R², nonlinear", "how much does any regression on all codes explain?"),
    "sis": ("SIS", "does each slot hold one object and nothing of the others?"),
    "block_score": ("Block score", "is each group of factors a function of one block of codes?"),
    "total_correlation": ("Total correlation", "how dependent are the codes on each other, as Gaussians?"),
    "wasserstein_correlation": ("Wasserstein correlation", "how far are they from independent ones, as Gaussians?"),
    "wasserstein_correlation_norm": ("Wasserstein correlation, share", "the same as a share of the variance"),
    "mean_mutual_information": ("Mean information", "how much do two codes tell about each other?"),
    "structural_permutation": ("Nearness, permutation", "how far from the factors, up to order and sign?"),
    "structural_rigid": ("Nearness, rigid", "how far from the factors, up to a rotation?"),
    "structural_similarity": ("Nearness, similarity", "how far from the factors, up to a rotation and a scale?"),
    "structural_linear": ("Nearness, linear", "how far from the factors, up to any linear map?"),
}

FAMILIES = {  # of metrics: what they are called, and what their scores ask together
    "infomec": (
        "InfoMEC",
        "asks how information is shared: each code should tell about one factor only (InfoM), each factor be told by "
        "one code only (InfoC), and a linear readout of all codes should give it (InfoE).",
    ),
    "dci": (
        "DCI",
        "asks trees to predict the factors, and looks which codes they use: each code for one factor "
        "(disentanglement), one code for each factor (completeness), and well (informativeness).",
    ),
    "mig": (
        "MIG",
        "asks whether one code, and no other, tells about a factor; it does not see what else a code tells.",
    ),
    "modularity": ("Modularity", "asks whether a code tells about one factor only; codes that tell nothing count 0."),
    "sap": ("SAP", "asks how much worse a factor is predicted by the second best single code than by the best."),
    "explicitness": (
        "Explicitness",
        "asks whether the classes lie apart; 0.5 is chance, and a rotation goes unnoticed.",
    ),
    "beta_vae": (
        "BetaVAE",
        "asks a linear classifier which factor pairs of rows share; rotated codes can score 1 too.",
    ),
    "factor_vae": ("FactorVAE", "asks the code that varies least which factor was held still."),
    "irs": ("IRS", "asks whether a code stays where it is when only factors other than its own change."),
    "mcc": (
        "MCC",
        "asks how well factors and codes correlate when they are matched one to one; the weak one allows a linear map "
        "first, and so does not notice a rotation.",
    ),
    "regression": ("R²", "asks whether all codes together hold the factors, wherever they are; blind to rotations."),
    "sis": ("SIS", "asks whether each slot of codes holds one object, and no other slot anything of it."),
    "block_score": ("Block score", "asks whether each group of factors is a function of one block of codes."),
    "unsupervised": (
        "Without factors",
        "asks how dependent the codes are on each other; independent codes need not be the factors.",
    ),
    "structural_nearness": (
        "Structural nearness",
        "asks how far the codes are from the factors after the best map of a group, as a share of their diameter.",
    ),
}
