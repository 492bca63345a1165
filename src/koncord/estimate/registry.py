"""The local estimators by name: the one list of koncord's own, and those of installed packages.

A package offers an estimator by an entry point of the group ``koncord.estimators``: its name, and where its class or a
function that makes it is. What can be called with ``random_state`` is given the seed.
"""

from koncord._registry import Offer, Registry

ESTIMATORS = Registry(
    "estimator",
    "koncord.estimators",
    [
        Offer(
            name="asm",
            home="koncord.estimate.asm:ASM",
            summary="split and merge Gaussians, each with a variance of its own",
        ),
        Offer(
            name="asm-identity",
            home="koncord.estimate.asm:identity_asm",
            summary="the same with unit variance, in the units of the table",
        ),
        Offer(name="xmeans", home="koncord.estimate.xmeans:XMeans", summary="k-means, split while the BIC rises"),
        Offer(
            name="gmeans",
            home="koncord.estimate.gmeans:GMeans",
            summary="k-means, split until the rows along each axis look Gaussian",
        ),
        Offer(
            name="dpgmm",
            home="koncord.estimate.dpgmm:searched_dpgmm",
            summary="Dirichlet process mixture, its parameters chosen on held-out rows",
        ),
    ],
)
