package main

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// SequenceProfile has the gates of a profile and the registrations of its plugins.
type SequenceProfile struct {
	Gates   []string                  `json:"gates"`
	Plugins map[string][]Registration `json:"plugins"`
}

// Registration is an event that a plugin registers for.
type Registration struct {
	Resource string   `json:"resource"`
	Actions  []string `json:"actions"`
	Hint     string   `json:"hint"`
}

// SequencePod has the fields of a pod that the fake plugins read.
type SequencePod struct {
	Name        string            `json:"name"`
	Profile     string            `json:"profile"`
	Priority    int32             `json:"priority"`
	Labels      map[string]string `json:"labels"`
	Gated       bool              `json:"gated"`
	Nominated   string            `json:"nominated"`
	Tolerations int               `json:"tolerations"`
	CPU         int64             `json:"cpu"`
	Note        string            `json:"note"`
}

// SequenceEvent is a change of an object, of which only the labels matter. Old is
// absent for an addition, New for a deletion.
type SequenceEvent struct {
	Resource string             `json:"resource"`
	Action   string             `json:"action"`
	Old      *map[string]string `json:"old,omitempty"`
	New      *map[string]string `json:"new,omitempty"`
}

const (
	sequenceNamespace = "default"
	colourLabel       = "colour"
	heldLabel         = "held"
)

// pod returns the Kubernetes object. The UID contains the generation, which is the
// number of pods created with this name.
func (p SequencePod) pod(generation int) *v1.Pod {
	lbls := make(map[string]string, len(p.Labels))
	for key, value := range p.Labels {
		lbls[key] = value
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: sequenceNamespace, Labels: lbls,
			UID: types.UID(fmt.Sprintf("%s.%d", p.Name, generation)),
		},
		Spec: v1.PodSpec{
			SchedulerName: p.Profile, Priority: &p.Priority,
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(p.CPU, resource.DecimalSI)},
			}}},
		},
		Status: v1.PodStatus{NominatedNodeName: p.Nominated},
	}
	if p.Note != "" {
		pod.Annotations = map[string]string{"note": p.Note}
	}
	if p.Gated {
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}}
	}
	for n := range p.Tolerations {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: fmt.Sprint(n), Operator: v1.TolerationOpExists})
	}
	return pod
}

func (e SequenceEvent) clusterEvent() fwk.ClusterEvent {
	return fwk.ClusterEvent{Resource: fwk.EventResource(e.Resource), ActionType: actionTypes[e.Action]}
}

func (e SequenceEvent) objects() (before, after interface{}) {
	object := func(lbls *map[string]string) interface{} {
		if lbls == nil {
			return nil
		}
		meta := metav1.ObjectMeta{Name: "it", Namespace: sequenceNamespace, UID: "it", Labels: *lbls}
		switch e.Resource {
		case "AssignedPod":
			return &v1.Pod{ObjectMeta: meta, Spec: v1.PodSpec{NodeName: "n0"}}
		case string(fwk.Node):
			return &v1.Node{ObjectMeta: meta}
		case string(fwk.PersistentVolumeClaim):
			return &v1.PersistentVolumeClaim{ObjectMeta: meta}
		}
		return &storagev1.StorageClass{ObjectMeta: meta}
	}
	return object(e.Old), object(e.New)
}

var actionTypes = map[string]fwk.ActionType{
	"Add":                                fwk.Add,
	"Delete":                             fwk.Delete,
	"Update":                             fwk.Update,
	"All":                                fwk.All,
	"UpdateNodeAllocatable":              fwk.UpdateNodeAllocatable,
	"UpdateNodeLabel":                    fwk.UpdateNodeLabel,
	"UpdateNodeTaint":                    fwk.UpdateNodeTaint,
	"UpdatePodLabel":                     fwk.UpdatePodLabel,
	"UpdatePodScaleDown":                 fwk.UpdatePodScaleDown,
	"UpdatePodToleration":                fwk.UpdatePodToleration,
	"UpdatePodSchedulingGatesEliminated": fwk.UpdatePodSchedulingGatesEliminated,
}

// lessInQueue is PrioritySort with ties broken by UID, so that the order does not
// depend on the structure of the heap.
func lessInQueue(a, b fwk.QueuedEntityInfo) bool {
	first, second := a.(*framework.QueuedPodInfo).Pod, b.(*framework.QueuedPodInfo).Pod
	if *first.Spec.Priority != *second.Spec.Priority {
		return *first.Spec.Priority > *second.Spec.Priority
	}
	if !a.GetTimestamp().Equal(b.GetTimestamp()) {
		return a.GetTimestamp().Before(b.GetTimestamp())
	}
	return first.UID < second.UID
}

// sequenceGate rejects the pods for which isClosed returns true. At most one gate of a
// pod is closed at a time, because the queue calls gates in random order.
type sequenceGate struct {
	name         string
	isClosed     func(*v1.Pod) bool
	returnsError bool
}

func (g sequenceGate) Name() string { return g.name }

func (g sequenceGate) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	switch {
	case !g.isClosed(pod):
		return nil
	case g.returnsError:
		return fwk.AsStatus(errors.New("fake gate error"))
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "gate is closed")
}

// gates returns the gates by profile and name.
func (run *sequenceRun) gates() map[string]map[string]fwk.PreEnqueuePlugin {
	closedBySpec := func(pod *v1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }
	closedByLabel := func(pod *v1.Pod) bool { return !closedBySpec(pod) && pod.Labels[heldLabel] != "" }
	closedByStep := func(pod *v1.Pod) bool { return !closedBySpec(pod) && !closedByLabel(pod) && run.closed[pod.Name] }
	all := map[string]sequenceGate{
		"SpecGate":  {"SpecGate", closedBySpec, false},
		"LabelGate": {"LabelGate", closedByLabel, false},
		"OuterGate": {"OuterGate", closedByStep, false},
		"FaultGate": {"FaultGate", closedByStep, true},
	}
	gates := map[string]map[string]fwk.PreEnqueuePlugin{}
	for name, profile := range run.profiles {
		gates[name] = map[string]fwk.PreEnqueuePlugin{}
		for _, gate := range profile.Gates {
			gates[name][gate] = all[gate]
		}
	}
	return gates
}

// hints returns the registered queueing hints by profile and event.
func (run *sequenceRun) hints() internalqueue.QueueingHintMapPerProfile {
	hints := internalqueue.QueueingHintMapPerProfile{}
	for name, profile := range run.profiles {
		byEvent := internalqueue.QueueingHintMap{}
		for plugin, registered := range profile.Plugins {
			for _, r := range registered {
				event := fwk.ClusterEvent{Resource: fwk.EventResource(r.Resource)}
				for _, action := range r.Actions {
					event.ActionType |= actionTypes[action]
				}
				for _, e := range unrollEvent(event) {
					byEvent[e] = append(byEvent[e], &internalqueue.QueueingHintFunction{PluginName: plugin, QueueingHintFn: sequenceHint(r.Hint)})
				}
			}
		}
		hints[name] = byEvent
	}
	return hints
}

// sequenceHint returns the queueing hint of a kind.
func sequenceHint(kind string) fwk.QueueingHintFn {
	return func(_ klog.Logger, pod *v1.Pod, before, after interface{}) (fwk.QueueingHint, error) {
		queue := false
		changed, _ := after.(metav1.Object)
		if changed == nil {
			changed, _ = before.(metav1.Object)
		}
		switch kind {
		case "error":
			return fwk.QueueSkip, errors.New("fake hint error")
		case "queue":
			queue = true
		case "colour":
			queue = changed != nil && changed.GetLabels()[colourLabel] == pod.Labels[colourLabel]
		case "own":
			queue = changed != nil && changed.GetUID() == pod.UID
		case "freed":
			queue = after == nil
		}
		if queue {
			return fwk.Queue, nil
		}
		return fwk.QueueSkip, nil
	}
}

// podLister lists the API server's pods for the nominator.
type podLister struct{ run *sequenceRun }

func (p podLister) List(labels.Selector) ([]*v1.Pod, error) {
	return nil, errors.New("List is not implemented")
}
func (p podLister) Pods(string) listersv1.PodNamespaceLister { return podNamespaceLister{p} }

type podNamespaceLister struct{ podLister }

func (p podNamespaceLister) Get(name string) (*v1.Pod, error) {
	if pod, ok := p.run.pods[name]; ok {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
}
