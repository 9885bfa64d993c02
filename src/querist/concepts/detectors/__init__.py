"""Signs of a backdoor in a table or in activations; none of them is given a trigger, a truth or a success rate."""

from querist.concepts.detectors._activations import ActivationClustering, SpectralSignature
from querist.concepts.detectors._agreement import AgreementTest, agreement_test
from querist.concepts.detectors._anomaly import LEAST_CLASSES, CleanseTest, anomaly_index, cleanse_test
from querist.concepts.detectors._association import Association, association, size_outlier
from querist.concepts.detectors._audits import AssociationAudit, Consistency, TwoSample, apart_by, class_matrix
from querist.concepts.detectors._cleanse import ConceptCleanse, clean_indices
from querist.concepts.detectors._clustering import Clusters, activation_clusters
from querist.concepts.detectors._conflicts import Conflicts, conflicts
from querist.concepts.detectors._conjunctions import Conjunctions, absent_conjunctions, literals
from querist.concepts.detectors._consistency import ConsistencyCheck, consistency_check
from querist.concepts.detectors._detector import Detector, Findings
from querist.concepts.detectors._entropy import Perturbation
from querist.concepts.detectors._evaluate import Detection, evaluate
from querist.concepts.detectors._gradient import invert_gradient
from querist.concepts.detectors._inversion import Inversion, discrete_index, invert_discrete
from querist.concepts.detectors._masked import masked_agreement
from querist.concepts.detectors._network import activations_of, head_of
from querist.concepts.detectors._pattern import PatternExcess, pattern_excess
from querist.concepts.detectors._reference import ReferenceTest, class_level_test, reference_test
from querist.concepts.detectors._runtime import RuntimeMonitor
from querist.concepts.detectors._spectral import Signature, signature_flags, signature_threshold, spectral_signature
from querist.concepts.detectors._trajectory import (
    LossTrajectory,
    Trajectory,
    early_learned,
    loss_trajectory,
    row_losses,
)

__all__ = [
    "LEAST_CLASSES",
    "ActivationClustering",
    "AgreementTest",
    "Association",
    "AssociationAudit",
    "CleanseTest",
    "Clusters",
    "ConceptCleanse",
    "Conflicts",
    "Conjunctions",
    "Consistency",
    "ConsistencyCheck",
    "Detection",
    "Detector",
    "Findings",
    "Inversion",
    "LossTrajectory",
    "PatternExcess",
    "Perturbation",
    "ReferenceTest",
    "RuntimeMonitor",
    "Signature",
    "SpectralSignature",
    "Trajectory",
    "TwoSample",
    "absent_conjunctions",
    "activation_clusters",
    "activations_of",
    "agreement_test",
    "anomaly_index",
    "apart_by",
    "association",
    "class_level_test",
    "class_matrix",
    "clean_indices",
    "cleanse_test",
    "conflicts",
    "consistency_check",
    "discrete_index",
    "early_learned",
    "evaluate",
    "head_of",
    "invert_discrete",
    "invert_gradient",
    "literals",
    "loss_trajectory",
    "masked_agreement",
    "pattern_excess",
    "reference_test",
    "row_losses",
    "signature_flags",
    "signature_threshold",
    "size_outlier",
    "spectral_signature",
]
