"""The label and the annotations by which a test speaks to the simulated kubelets."""

# Label on a Node: this process plays its kubelet.
SIMULATED = "testbed.slicewise.dev/simulated"
# Annotation on a Node: "stopped" ends heartbeats and pod handling, as if its kubelet died.
KUBELET = "testbed.slicewise.dev/kubelet"
# Annotation on a Pod: how long its containers run; without it they run until deleted.
RUN_SECONDS = "testbed.slicewise.dev/run-seconds"
# Annotation on a Pod: the exit code of its containers; without it 0.
EXIT_CODE = "testbed.slicewise.dev/exit-code"
