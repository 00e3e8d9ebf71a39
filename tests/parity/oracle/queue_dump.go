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

// SequenceResult is a line of the output of -queue.
type SequenceResult struct {
	Name  string      `json:"name"`
	Dumps []QueueDump `json:"dumps"`
	// Incoming has the number of pods that entered a queue, by "event queue".
	Incoming map[string]int `json:"incoming"`
	// UnschedulableBy has the number of waiting pods that a plugin rejected,
	// at the end, by "plugin profile".
	UnschedulableBy map[string]int `json:"unschedulableBy,omitempty"`
}

// QueueDump is the content of the queue after a step. Pods are identified by UID.
type QueueDump struct {
	Popped        string                `json:"popped,omitempty"`
	Active        []string              `json:"active,omitempty"` // in the order of popping
	Backoff       []string              `json:"backoff,omitempty"`
	ErrorBackoff  []string              `json:"errorBackoff,omitempty"`
	Unschedulable []string              `json:"unschedulable,omitempty"`
	Gated         map[string]string     `json:"gated,omitempty"` // plugin by pod
	InFlight      []string              `json:"inFlight,omitempty"`
	Nominated     map[string][]string   `json:"nominated,omitempty"`
	Events        map[string]int        `json:"events,omitempty"` // number of events stored for attempts, by label
	Pods          map[string]PodHistory `json:"pods,omitempty"`   // waiting pods and pods in flight
}

// PodHistory is the history of a pod, with times in milliseconds since the first step.
type PodHistory struct {
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
var sequenceNodes = []string{"n0", "n1", "n2"}

// rejectors returns the sorted names of the plugins that rejected a pod.
func rejectors(pInfo *framework.QueuedPodInfo) []string {
	names := pInfo.UnschedulablePlugins.Union(pInfo.PendingPlugins).UnsortedList()
	sort.Strings(names)
	return names
}

// dump returns the content of the queue.
func (run *sequenceRun) dump(popped string) QueueDump {
	d := QueueDump{Popped: popped, Gated: map[string]string{}, Events: run.inFlightEvents(), Nominated: map[string][]string{}, Pods: map[string]PodHistory{}}
	active := run.queuedInfos(run.queue.PodsInActiveQ())
	sort.Slice(active, func(i, j int) bool { return lessInQueue(active[i], active[j]) })
	for _, pInfo := range active {
		d.Active = append(d.Active, d.add(pInfo, false))
	}
	for _, pInfo := range run.queuedInfos(run.queue.PodsInBackoffQ()) {
		uid := d.add(pInfo, true)
		if len(rejectors(pInfo)) == 0 {
			d.ErrorBackoff = append(d.ErrorBackoff, uid)
		} else {
			d.Backoff = append(d.Backoff, uid)
		}
	}
	for _, pInfo := range run.queuedInfos(run.queue.UnschedulablePods()) {
		uid := d.add(pInfo, false)
		if pInfo.Gated() {
			d.Gated[uid] = pInfo.GatingPlugin
		} else {
			d.Unschedulable = append(d.Unschedulable, uid)
		}
	}
	for _, pod := range run.queue.InFlightPods() {
		if current, ok := run.pods[pod.Name]; ok && current.UID == pod.UID {
			d.InFlight = append(d.InFlight, string(pod.UID))
		}
	}
	for _, pInfo := range run.attempts {
		if current, ok := run.pods[pInfo.Pod.Name]; ok && current.UID == pInfo.Pod.UID {
			h := history(pInfo)
			h.Rejectors = nil
			d.Pods[string(pInfo.Pod.UID)] = h
		}
	}
	for _, node := range sequenceNodes {
		for _, pi := range run.queue.NominatedPodsForNode(node) {
			d.Nominated[node] = append(d.Nominated[node], string(pi.GetPod().UID))
		}
	}
	sort.Strings(d.InFlight)
	return d
}

// queuedInfos returns the entries of the queue for pods, sorted by UID.
func (run *sequenceRun) queuedInfos(pods []*v1.Pod) []*framework.QueuedPodInfo {
	sort.Slice(pods, func(i, j int) bool { return pods[i].UID < pods[j].UID })
	var found []*framework.QueuedPodInfo
	for _, pod := range pods {
		if pInfo, ok := run.queue.GetPod(pod.Name, pod.Namespace, nil); ok {
			found = append(found, pInfo)
		}
	}
	return found
}

//go:linkname listInFlightEvents k8s.io/kubernetes/pkg/scheduler/backend/queue.(*activeQueue).listInFlightEvents
func listInFlightEvents(activeQueue unsafe.Pointer) []interface{}

// inFlightEvents returns the number of in-flight events by label, with attempts as
// PodPopped. The gauge of these events is written with a delay.
func (run *sequenceRun) inFlightEvents() map[string]int {
	counts := map[string]int{}
	active := reflect.ValueOf(run.queue).Elem().FieldByName("activeQ").Elem()
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

// add adds the history of a waiting pod and returns the UID.
func (d *QueueDump) add(pInfo *framework.QueuedPodInfo, isBackingOff bool) string {
	uid, h := string(pInfo.Pod.UID), history(pInfo)
	if isBackingOff {
		h.BackoffEnds = milliseconds(pInfo.BackoffExpiration.Add(time.Second))
	}
	d.Pods[uid] = h
	return uid
}

func history(pInfo *framework.QueuedPodInfo) PodHistory {
	h := PodHistory{
		Attempts: pInfo.Attempts, Unschedulable: pInfo.UnschedulableCount, Errors: pInfo.ConsecutiveErrorsCount,
		Since: milliseconds(pInfo.Timestamp), First: -1, Flushed: pInfo.WasFlushedFromUnschedulable, Rejectors: rejectors(pInfo),
	}
	if pInfo.InitialAttemptTimestamp != nil {
		h.First = milliseconds(*pInfo.InitialAttemptTimestamp)
	}
	return h
}

// milliseconds returns the time from the first step to t in milliseconds.
func milliseconds(t time.Time) int64 { return t.Sub(sequenceStart).Milliseconds() }

// readMetrics adds the metrics of the queue to the result.
func readMetrics(res *SequenceResult) error {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return err
	}
	byMetric := map[string]map[string]int{"scheduler_queue_incoming_pods_total": {}, "scheduler_unschedulable_pods": {}}
	for _, family := range families {
		counts, ok := byMetric[family.GetName()]
		if !ok {
			continue
		}
		for _, m := range family.GetMetric() {
			// Labels are sorted by name: event before queue, plugin before profile.
			var values []string
			for _, pair := range m.GetLabel() {
				values = append(values, pair.GetValue())
			}
			if n := int(m.GetCounter().GetValue() + m.GetGauge().GetValue()); n != 0 {
				counts[strings.Join(values, " ")] = n
			}
			if m.GetGauge() != nil {
				metrics.UnschedulableReason(values[0], values[1]).Set(0) // for the next sequence
			}
		}
	}
	res.Incoming = byMetric["scheduler_queue_incoming_pods_total"]
	res.UnschedulableBy = byMetric["scheduler_unschedulable_pods"]
	return nil
}
