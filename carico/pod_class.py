"""The class of a pod: a pure function of the fields that both the agent and the scheduler have.

The agent has the fields that the runtime stores: namespace, name, labels, annotations and the images as in the pod's
specification; no owner references. Labels of one pod, one run or one rollout are ignored. The remaining labels
determine the *family*; the hash of the template, or a replacement for it, the *revision*.

    labels identify the workload         team-a/web, team-a/postgresql.primary~1f3a09c2
    a Job without such labels            team-a/job:migrate       (two runs of a CronJob are one family)
    neither labels nor a Job             team-a/image:busybox
    annotation carico.dev/cost-class     team-a/<its value>

A hash follows the name if the labels contain more than the name. All parts are bounded in length and restricted to
plain characters, whatever the labels contain.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from carico.types import ClassKey

COST_CLASS = "carico.dev/cost-class"
# Label of pods that belong to a node's baseline, as those of DaemonSets do: "false". Carico's own pods have it.
WORKLOAD = "carico.dev/workload"
DEFAULT = "default"  # in a list of ignored labels: all of IGNORED
DEFAULT_IGNORED = (DEFAULT,)

# Labels of controllers that distinguish templates.
REVISIONS = (
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "controller-revision-hash",
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
    "serving.knative.dev/revision",
)
JOBS = ("batch.kubernetes.io/job-name", "job-name")
# Labels whose value is the name of one run: the suffix that was generated for the run is removed.
RUNS = (
    "workflows.argoproj.io/workflow",
    "sparkoperator.k8s.io/app-name",
    "spark-app-name",
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "dask.org/cluster-name",
)
NAMES = (
    "app.kubernetes.io/name",
    "app",
    "k8s-app",
    "name",
    "run",
    "service",
    *RUNS,
    "tekton.dev/pipeline",
    "tekton.dev/task",
    "dag_id",
    "serving.knative.dev/service",
    "strimzi.io/name",
    "app.kubernetes.io/instance",
)
# Labels that distinguish the components of one application; added to the name.
ROLES = (
    "app.kubernetes.io/component",
    "component",
    "tier",
    "role",
    "spark-role",
    "task_id",
    "tekton.dev/pipelineTask",
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "volcano.sh/task-spec",
    "ray.io/group",
    "dask.org/component",
)
# Argo stores the step of a workflow in an annotation of the pod: "build-x7k2p[0].compile(1)".
ARGO_WORKFLOW = "workflows.argoproj.io/workflow"
ARGO_STEP = "workflows.argoproj.io/node-name"
ARGO_INDEX = re.compile(r"\[\d{1,9}\]|\([^()]*\)")

# Labels of one pod, one run or one rollout, and those that are added or changed after the creation of the pod. A last *
# matches any suffix.
IGNORED = (
    # Kubernetes: controllers, the kubelet's labels of a sandbox, topology labels that a binding adds
    "controller-uid",
    "batch.kubernetes.io/*",
    "pod-template-generation",
    "statefulset.kubernetes.io/*",
    "apps.kubernetes.io/*",
    "io.kubernetes.*",
    "io.cri-containerd.*",
    "topology.kubernetes.io/*",
    "failure-domain.beta.kubernetes.io/*",
    "topology.carico.dev/*",
    "kubernetes.io/hostname",
    # installer and version
    "helm.sh/*",
    "chart",
    "heritage",
    "version",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/created-by",
    "app.kubernetes.io/part-of",
    "argocd.argoproj.io/*",
    "kustomize.toolkit.fluxcd.io/*",
    "helm.toolkit.fluxcd.io/*",
    "service.istio.io/*",
    "security.istio.io/*",
    "istio.io/rev",
    # batch systems
    "spark-app-selector",
    "spark-exec-id",
    "spark-exec-inactive",
    "spark-exec-resourceprofile-id",
    "spark-version",
    "sparkoperator.k8s.io/submission-id",
    "sparkoperator.k8s.io/launched-by-spark-operator",
    "workflows.argoproj.io/completed",
    "workflows.argoproj.io/creator*",
    "tekton.dev/pipelineRun*",
    "tekton.dev/taskRun*",
    "training.kubeflow.org/replica-index",
    "training.kubeflow.org/operator-name",
    "pipeline/runid",
    "jobset.sigs.k8s.io/job-index",
    "jobset.sigs.k8s.io/job-key",
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/jobset-uid",
    "jobset.sigs.k8s.io/restart-attempt",
    "jobset.sigs.k8s.io/replicatedjob-replicas",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/group-key",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "kueue.x-k8s.io/*",
    "volcano.sh/task-index",
    "volcano.sh/queue-name",
    "volcano.sh/job-version",
    "volcano.sh/job-namespace",
    "ray.io/identifier",
    "ray.io/is-ray-node",
    "dask.org/worker-name",
    "airflow-worker",
    "airflow_version",
    "kubernetes_executor",
    "run_id",
    "try_number",
    "map_index",
    "execution_date",
    "job.runner.gitlab.com/*",
    "manager.runner.gitlab.com/*",
    "serving.knative.dev/configurationGeneration",
    "serving.knative.dev/configurationUID",
    "serving.knative.dev/revisionUID",
    "serving.knative.dev/serviceUID",
)

LONGEST = 63  # characters of a namespace, a readable name, a revision: the maximum length of a label
HASH = 8  # hexadecimal digits
READ_MOST = 1024  # characters of an annotation that are used
UNPLAIN = re.compile(r"[^A-Za-z0-9._-]")
# The suffix of generateName, and that of a CronJob: minutes since the epoch, in older versions seconds.
GENERATED = re.compile(r"(?<=.)-[bcdfghjklmnpqrstvwxz2456789]{5}$")
TIME = re.compile(r"(?<=.)-[0-9]{8,10}$")
IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}$")


def class_of(
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    images: Iterable[str],
    ignored: tuple[str, ...] = DEFAULT_IGNORED,
) -> ClassKey:
    """The class of a pod. `images` are those of all containers and init containers, as in the pod's specification.

    >>> class_of("team-a", "web-5d-x", {"app": "web", "pod-template-hash": "5d"}, {}, ["nginx"])
    ClassKey(namespace='team-a', family='team-a/web', revision='5d')
    >>> class_of("team-a", "sum-29384760-kx7vz", {"job-name": "sum-29384760", "controller-uid": "1"}, {}, ["pi"]).family
    'team-a/job:sum'
    """
    if chosen := annotations.get(COST_CLASS):
        return _key(namespace, "", (chosen,), {})
    labels_kept = _identifying_labels(labels, annotations, ignored)
    job = _job(labels)
    if labels_kept:
        return _by_labels(namespace, labels_kept, job, labels)
    if job:
        return _key(namespace, "job:", (job,), {})
    return _by_images(namespace, name, images)


def needs_images(labels: Mapping[str, str], annotations: Mapping[str, str], ignored: tuple[str, ...]) -> bool:
    """Whether only the images identify the pod. Its labels, annotations and name are not used then."""
    return not (annotations.get(COST_CLASS) or _job(labels) or _identifying_labels(labels, annotations, ignored))


def is_of_images(key: ClassKey) -> bool:
    """Whether only the images, or without any the pod's name, determined this class: no label can contain a colon.

    >>> [is_of_images(class_of("team-a", "x", labels, {}, ["pi"])) for labels in ({}, {"app": "web"})]
    [True, False]
    """
    return key.family.startswith((f"{key.namespace}/image:", f"{key.namespace}/pod:"))


def class_of_images(namespace: str, images: Iterable[str]) -> ClassKey | None:
    """The class of a pod that only its images identify; None while no image is known."""
    known = [image for image in images if image and not IMAGE_ID.match(image)]
    return _by_images(namespace, "", known) if known else None


def base_name(name: str) -> str:
    """A name without the suffix that a controller added to distinguish runs.

    >>> base_name("report-29384760"), base_name("build-x7k2p"), base_name("train-resnet-50"), base_name("29384760")
    ('report', 'build', 'train-resnet-50', '29384760')
    """
    return TIME.sub("", GENERATED.sub("", name))


def repository(image: str) -> str:
    """An image without tag, digest and default registry.

    >>> repository("docker.io/library/nginx:1.27"), repository("r.example:5000/a/b@sha256:12")
    ('nginx', 'r.example:5000/a/b')
    """
    bare = image.partition("@")[0]
    folder, slash, last = bare.rpartition("/")
    bare = folder + slash + last.partition(":")[0]
    for start in ("index.docker.io/", "docker.io/", "library/"):
        bare = bare.removeprefix(start)
    return bare


def _tagged(image: str) -> str:
    """An image with its tag or digest, in normalised form.

    >>> _tagged("nginx"), _tagged("docker.io/library/nginx:1.27"), _tagged("a/b:1@sha256:12")
    ('nginx:latest', 'nginx:1.27', 'a/b@sha256:12')
    """
    bare, at, digest = image.partition("@")
    tag = bare.rpartition("/")[2].partition(":")[2] or "latest"
    return f"{repository(image)}@{digest}" if at else f"{repository(image)}:{tag}"


def _identifying_labels(
    labels: Mapping[str, str], annotations: Mapping[str, str], ignored: tuple[str, ...]
) -> dict[str, str]:
    """The labels that are not ignored, and the step of an Argo workflow."""
    exact, starts = _compiled(ignored)
    labels_kept = {}
    for key, value in labels.items():
        if key not in exact and not key.startswith(starts):
            labels_kept[key] = base_name(value) if key in RUNS else value
    if ARGO_STEP in annotations and ARGO_WORKFLOW in labels_kept:
        step = annotations[ARGO_STEP][:READ_MOST].removeprefix(labels[ARGO_WORKFLOW])
        if step := ARGO_INDEX.sub("", step).strip("."):
            labels_kept[ARGO_STEP] = step
    return labels_kept


@lru_cache(maxsize=64)
def _compiled(ignored: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    listed = [one for name in ignored for one in (IGNORED if name == DEFAULT else (name,))]
    exact = {one for one in listed if not one.endswith("*")}
    return frozenset(exact | {*REVISIONS, *JOBS}), tuple({one[:-1] for one in listed if one.endswith("*")})


def _job(labels: Mapping[str, str]) -> str:
    return next((base_name(labels[key]) for key in JOBS if labels.get(key)), "")


def _by_labels(namespace: str, labels_kept: dict[str, str], job: str, labels: Mapping[str, str]) -> ClassKey:
    revision = next((labels[key] for key in REVISIONS if labels.get(key)), "")
    named = next((labels_kept[key] for key in NAMES if labels_kept.get(key)), "")
    if not named and job:  # two Jobs are two families, unless their labels have the same application name
        return _key(namespace, "job:", (job,), labels_kept, revision)
    if not named:
        return _key(namespace, "", [labels_kept[key] or key for key in sorted(labels_kept)][:2], labels_kept, revision)
    parts = [named]
    for key in (ARGO_STEP, *ROLES):
        if (role := labels_kept.get(key, "")) and role not in parts:
            parts.append(role)
    more = {key: value for key, value in labels_kept.items() if value != named}
    return _key(namespace, "", parts[:3], labels_kept if more else {}, revision or job)


def _by_images(namespace: str, name: str, images: Iterable[str]) -> ClassKey:
    tagged = sorted({_tagged(image) for image in images})
    if not tagged:
        return _key(namespace, "pod:", (base_name(name),), {})
    repositories = sorted({repository(image) for image in tagged})
    short = [one.rpartition("/")[2] for one in repositories]
    whole = {} if short == repositories and len(short) == 1 else dict.fromkeys(repositories, "")
    return _key(namespace, "image:", short[:2], whole, _digest(tagged))


def _key(namespace: str, kind: str, parts: Sequence[str], whole: Mapping[str, str], revision: str = "") -> ClassKey:
    """`whole` is what the family is identified by, if that is more than the name."""
    place, _ = _plain(namespace)
    name, same = _plain(".".join(parts))
    if whole or not same:
        identity = [text for pair in sorted(whole.items()) for text in pair] or parts
        name = f"{name}~{_digest(identity)}"
    stamp, same = _plain(revision)
    return ClassKey(place, f"{place}/{kind}{name}", stamp if same else f"{stamp}~{_digest([revision])}")


def _plain(text: str) -> tuple[str, bool]:
    """The text shortened and restricted to plain characters, and whether that left it unchanged."""
    plain = UNPLAIN.sub("-", text[:LONGEST])
    return plain, plain == text


def _digest(texts: Iterable[str]) -> str:
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:HASH]
