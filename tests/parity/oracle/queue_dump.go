package main

import (
	"reflect"
	"sort"
	"strings"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// LifeResult is a line of the output of -queue.
type LifeResult struct {
	Name  string     `json:"name"`
	Dumps []LifeDump `json:"dumps"`
	// Incoming has the number of pods that entered a queue, by "event queue".
	Incoming map[string]int `json:"incoming"`
	// UnschedulableBy has the number of waiting pods that a plugin rejected,
	// at the end, by "plugin profile".
	UnschedulableBy map[string]int `json:"unschedulableBy,omitempty"`
}

// LifeDump is the content of the queue after a step. Pods are identified by UID.
type LifeDump struct {
	Popped        string              `json:"popped,omitempty"`
	Active        []string            `json:"active,omitempty"` // in the order of popping
	Backoff       []string            `json:"backoff,omitempty"`
	ErrorBackoff  []string            `json:"errorBackoff,omitempty"`
	Unschedulable []string            `json:"unschedulable,omitempty"`
	Gated         map[string]string   `json:"gated,omitempty"` // plugin by pod
	InFlight      []string            `json:"inFlight,omitempty"`
	Nominated     map[string][]string `json:"nominated,omitempty"`
	Events        map[string]int      `json:"events,omitempty"` // number of events stored for attempts, by label
	Pods          map[string]LifeOf   `json:"pods,omitempty"`   // waiting pods and pods in flight
}

// LifeOf is the history of a pod, with times in milliseconds since the first step.
type LifeOf struct {
	Attempts      int      `json:"attempts"`
	Unschedulable int      `json:"unschedulable"`
	Errors        int      `json:"errors"`
	Since         int64    `json:"since"`
	First         int64    `json:"first"`       // start of the first attempt, or -1
	BackoffEnds   int64    `json:"backoffEnds"` // the tick that ends the backoff, or 0
	Flushed       bool     `json:"flushed"`
	Rejectors     []string `json:"rejectors,omitempty"` // only of waiting pods
}

// The nominator stores a nomination without a node under "", which is not read.
var lifeNodes = []string{"n0", "n1", "n2"}

func rejectors(pInfo *framework.QueuedPodInfo) []string {
	names := pInfo.UnschedulablePlugins.Union(pInfo.PendingPlugins).UnsortedList()
	sort.Strings(names)
	return names
}

func (l *life) dump(popped string) LifeDump {
	d := LifeDump{Popped: popped, Gated: map[string]string{}, Events: l.keptEvents(), Nominated: map[string][]string{}, Pods: map[string]LifeOf{}}
	active := l.waiting(l.queue.PodsInActiveQ())
	sort.Slice(active, func(i, j int) bool { return lifeLess(active[i], active[j]) })
	for _, pInfo := range active {
		d.Active = append(d.Active, d.add(pInfo, false))
	}
	for _, pInfo := range l.waiting(l.queue.PodsInBackoffQ()) {
		uid := d.add(pInfo, true)
		if len(rejectors(pInfo)) == 0 {
			d.ErrorBackoff = append(d.ErrorBackoff, uid)
		} else {
			d.Backoff = append(d.Backoff, uid)
		}
	}
	for _, pInfo := range l.waiting(l.queue.UnschedulablePods()) {
		uid := d.add(pInfo, false)
		if pInfo.Gated() {
			d.Gated[uid] = pInfo.GatingPlugin
		} else {
			d.Unschedulable = append(d.Unschedulable, uid)
		}
	}
	for _, pod := range l.queue.InFlightPods() {
		if known, ok := l.world[pod.Name]; ok && known.UID == pod.UID {
			d.InFlight = append(d.InFlight, string(pod.UID))
		}
	}
	for _, pInfo := range l.flying {
		if known, ok := l.world[pInfo.Pod.Name]; ok && known.UID == pInfo.Pod.UID {
			of := history(pInfo)
			of.Rejectors = nil
			d.Pods[string(pInfo.Pod.UID)] = of
		}
	}
	for _, node := range lifeNodes {
		for _, pi := range l.queue.NominatedPodsForNode(node) {
			d.Nominated[node] = append(d.Nominated[node], string(pi.GetPod().UID))
		}
	}
	sort.Strings(d.InFlight)
	return d
}

func (l *life) waiting(pods []*v1.Pod) []*framework.QueuedPodInfo {
	sort.Slice(pods, func(i, j int) bool { return pods[i].UID < pods[j].UID })
	var found []*framework.QueuedPodInfo
	for _, pod := range pods {
		if pInfo, ok := l.queue.GetPod(pod.Name, pod.Namespace, nil); ok {
			found = append(found, pInfo)
		}
	}
	return found
}

//go:linkname listInFlightEvents k8s.io/kubernetes/pkg/scheduler/backend/queue.(*activeQueue).listInFlightEvents
func listInFlightEvents(activeQueue unsafe.Pointer) []interface{}

// keptEvents returns the number of in-flight events by label, with attempts as
// PodPopped. The gauge of these events is written with a delay.
func (l *life) keptEvents() map[string]int {
	counts := map[string]int{}
	active := reflect.ValueOf(l.queue).Elem().FieldByName("activeQ").Elem()
	for _, entry := range listInFlightEvents(active.UnsafePointer()) {
		if _, ok := entry.(*v1.Pod); ok {
			counts[metrics.PodPoppedInFlightEvent]++
			continue
		}
		event := reflect.ValueOf(entry).Elem().FieldByName("event")
		counts[fwk.ClusterEvent{
			Resource:    fwk.EventResource(event.FieldByName("Resource").String()),
			ActionType:  fwk.ActionType(event.FieldByName("ActionType").Int()),
			CustomLabel: event.FieldByName("CustomLabel").String(),
		}.Label()]++
	}
	return counts
}

func (d *LifeDump) add(pInfo *framework.QueuedPodInfo, backsOff bool) string {
	uid, of := string(pInfo.Pod.UID), history(pInfo)
	if backsOff {
		of.BackoffEnds = since(pInfo.BackoffExpiration.Add(time.Second))
	}
	d.Pods[uid] = of
	return uid
}

func history(pInfo *framework.QueuedPodInfo) LifeOf {
	of := LifeOf{
		Attempts: pInfo.Attempts, Unschedulable: pInfo.UnschedulableCount, Errors: pInfo.ConsecutiveErrorsCount,
		Since: since(pInfo.Timestamp), First: -1, Flushed: pInfo.WasFlushedFromUnschedulable, Rejectors: rejectors(pInfo),
	}
	if pInfo.InitialAttemptTimestamp != nil {
		of.First = since(*pInfo.InitialAttemptTimestamp)
	}
	return of
}

func since(t time.Time) int64 { return t.Sub(lifeStart).Milliseconds() }

// count reads the metrics of the queue.
func (l *life) count(res *LifeResult) error {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return err
	}
	into := map[string]map[string]int{"scheduler_queue_incoming_pods_total": {}, "scheduler_unschedulable_pods": {}}
	for _, family := range families {
		counts, ok := into[family.GetName()]
		if !ok {
			continue
		}
		for _, m := range family.GetMetric() {
			// Labels are sorted by name: event before queue, plugin before profile.
			var words []string
			for _, pair := range m.GetLabel() {
				words = append(words, pair.GetValue())
			}
			if n := int(m.GetCounter().GetValue() + m.GetGauge().GetValue()); n != 0 {
				counts[strings.Join(words, " ")] = n
			}
			if m.GetGauge() != nil {
				metrics.UnschedulableReason(words[0], words[1]).Set(0) // for the next sequence
			}
		}
	}
	res.Incoming = into["scheduler_queue_incoming_pods_total"]
	res.UnschedulableBy = into["scheduler_unschedulable_pods"]
	return nil
}
