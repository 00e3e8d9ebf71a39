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

// LifeProfile has the gates of a profile and the registrations of its plugins.
type LifeProfile struct {
	Gates   []string                      `json:"gates"`
	Plugins map[string][]LifeRegistration `json:"plugins"`
}

// LifeRegistration is an event that a plugin registers for.
type LifeRegistration struct {
	Resource string   `json:"resource"`
	Actions  []string `json:"actions"`
	Hint     string   `json:"hint"`
}

// LifePod has the fields of a pod that the fake plugins read.
type LifePod struct {
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

// LifeEvent is a change of an object, of which only the labels matter. Old is
// absent for an addition, New for a deletion.
type LifeEvent struct {
	Resource string             `json:"resource"`
	Action   string             `json:"action"`
	Old      *map[string]string `json:"old,omitempty"`
	New      *map[string]string `json:"new,omitempty"`
}

const (
	lifeNamespace = "default"
	colour        = "colour"
	held          = "held"
)

func (p LifePod) pod(birth int) *v1.Pod {
	lbls := make(map[string]string, len(p.Labels))
	for key, value := range p.Labels {
		lbls[key] = value
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: lifeNamespace, Labels: lbls,
			UID: types.UID(fmt.Sprintf("%s.%d", p.Name, birth)),
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

func (e LifeEvent) clusterEvent() fwk.ClusterEvent {
	return fwk.ClusterEvent{Resource: fwk.EventResource(e.Resource), ActionType: lifeActions[e.Action]}
}

func (e LifeEvent) objects() (before, after interface{}) {
	object := func(lbls *map[string]string) interface{} {
		if lbls == nil {
			return nil
		}
		meta := metav1.ObjectMeta{Name: "it", Namespace: lifeNamespace, UID: "it", Labels: *lbls}
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

var lifeActions = map[string]fwk.ActionType{
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

// lifeLess is PrioritySort with ties broken by UID, so that the order does not
// depend on the structure of the heap.
func lifeLess(a, b fwk.QueuedEntityInfo) bool {
	first, second := a.(*framework.QueuedPodInfo).Pod, b.(*framework.QueuedPodInfo).Pod
	if *first.Spec.Priority != *second.Spec.Priority {
		return *first.Spec.Priority > *second.Spec.Priority
	}
	if !a.GetTimestamp().Equal(b.GetTimestamp()) {
		return a.GetTimestamp().Before(b.GetTimestamp())
	}
	return first.UID < second.UID
}

// lifeGate rejects the pods for which holds returns true. At most one gate of a
// pod is closed at a time, because the queue calls gates in random order.
type lifeGate struct {
	name  string
	holds func(*v1.Pod) bool
	fails bool
}

func (g lifeGate) Name() string { return g.name }

func (g lifeGate) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	switch {
	case !g.holds(pod):
		return nil
	case g.fails:
		return fwk.AsStatus(errors.New("no answer"))
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "held")
}

func (l *life) gates() map[string]map[string]fwk.PreEnqueuePlugin {
	bySpec := func(pod *v1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }
	byLabel := func(pod *v1.Pod) bool { return !bySpec(pod) && pod.Labels[held] != "" }
	byOthers := func(pod *v1.Pod) bool { return !bySpec(pod) && !byLabel(pod) && l.closed[pod.Name] }
	all := map[string]lifeGate{
		"SpecGate":  {"SpecGate", bySpec, false},
		"LabelGate": {"LabelGate", byLabel, false},
		"OuterGate": {"OuterGate", byOthers, false},
		"FaultGate": {"FaultGate", byOthers, true},
	}
	gates := map[string]map[string]fwk.PreEnqueuePlugin{}
	for name, profile := range l.profiles {
		gates[name] = map[string]fwk.PreEnqueuePlugin{}
		for _, gate := range profile.Gates {
			gates[name][gate] = all[gate]
		}
	}
	return gates
}

func (l *life) hints() internalqueue.QueueingHintMapPerProfile {
	hints := internalqueue.QueueingHintMapPerProfile{}
	for name, profile := range l.profiles {
		of := internalqueue.QueueingHintMap{}
		for plugin, registered := range profile.Plugins {
			for _, r := range registered {
				event := fwk.ClusterEvent{Resource: fwk.EventResource(r.Resource)}
				for _, action := range r.Actions {
					event.ActionType |= lifeActions[action]
				}
				for _, one := range unrolled(event) {
					of[one] = append(of[one], &internalqueue.QueueingHintFunction{PluginName: plugin, QueueingHintFn: lifeHint(r.Hint)})
				}
			}
		}
		hints[name] = of
	}
	return hints
}

func lifeHint(kind string) fwk.QueueingHintFn {
	return func(_ klog.Logger, pod *v1.Pod, before, after interface{}) (fwk.QueueingHint, error) {
		queue := false
		shown, _ := after.(metav1.Object)
		if shown == nil {
			shown, _ = before.(metav1.Object)
		}
		switch kind {
		case "error":
			return fwk.QueueSkip, errors.New("no idea")
		case "queue":
			queue = true
		case "colour":
			queue = shown != nil && shown.GetLabels()[colour] == pod.Labels[colour]
		case "own":
			queue = shown != nil && shown.GetUID() == pod.UID
		case "freed":
			queue = after == nil
		}
		if queue {
			return fwk.Queue, nil
		}
		return fwk.QueueSkip, nil
	}
}

// lifeLister lists the API server's pods for the nominator.
type lifeLister struct{ l *life }

func (s lifeLister) List(labels.Selector) ([]*v1.Pod, error)  { return nil, errors.New("not asked for") }
func (s lifeLister) Pods(string) listersv1.PodNamespaceLister { return lifeNamespaceLister{s} }

type lifeNamespaceLister struct{ lifeLister }

func (s lifeNamespaceLister) Get(name string) (*v1.Pod, error) {
	if pod, ok := s.l.world[name]; ok {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
}
