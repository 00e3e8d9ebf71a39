package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Change is the change of one object: an addition if Old is absent, a deletion
// if New is absent.
type Change struct {
	Kind string          `json:"kind"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// HintCase is a line of the input of -hints.
type HintCase struct {
	Case
	Change Change `json:"change"`
}

// RecordedEvent is an event that the scheduling queue receives, with the verdicts of the
// plugins. Plugins that did not register for it are absent. Excluded is set if the
// event is only for pods of lower priority.
type RecordedEvent struct {
	Event    string            `json:"event"`
	Excluded bool              `json:"keptFromPod,omitempty"`
	Hints    map[string]string `json:"hints"`
}

// HintResult is a line of the output of -hints.
type HintResult struct {
	Name     string            `json:"name"`
	Events   []RecordedEvent   `json:"events"`
	Verdicts map[string]string `json:"verdicts"`
}

const (
	hintQueue = "Queue"
	hintSkip  = "Skip"
	hintError = "Error" // the queue treats it as Queue
)

var kinds = map[string]func() runtime.Object{
	"Pod":                   func() runtime.Object { return &v1.Pod{} },
	"Node":                  func() runtime.Object { return &v1.Node{} },
	"Namespace":             func() runtime.Object { return &v1.Namespace{} },
	"Service":               func() runtime.Object { return &v1.Service{} },
	"PersistentVolume":      func() runtime.Object { return &v1.PersistentVolume{} },
	"PersistentVolumeClaim": func() runtime.Object { return &v1.PersistentVolumeClaim{} },
	"StorageClass":          func() runtime.Object { return &storagev1.StorageClass{} },
	"CSINode":               func() runtime.Object { return &storagev1.CSINode{} },
	"CSIDriver":             func() runtime.Object { return &storagev1.CSIDriver{} },
	"CSIStorageCapacity":    func() runtime.Object { return &storagev1.CSIStorageCapacity{} },
	"VolumeAttachment":      func() runtime.Object { return &storagev1.VolumeAttachment{} },
	"ResourceClaim":         func() runtime.Object { return &resourcev1.ResourceClaim{} },
	"ResourceSlice":         func() runtime.Object { return &resourcev1.ResourceSlice{} },
	"DeviceClass":           func() runtime.Object { return &resourcev1.DeviceClass{} },
	"DeviceTaintRule":       func() runtime.Object { return &resourcev1.DeviceTaintRule{} },
	"PodDisruptionBudget":   func() runtime.Object { return &policyv1.PodDisruptionBudget{} },
}

func (c Change) objects() (before, after runtime.Object, err error) {
	newObject, ok := kinds[c.Kind]
	if !ok {
		return nil, nil, fmt.Errorf("change of unknown kind %q", c.Kind)
	}
	read := func(text json.RawMessage) (runtime.Object, error) {
		if len(text) == 0 || string(text) == "null" {
			return nil, nil
		}
		o := newObject()
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return o, d.Decode(o)
	}
	if before, err = read(c.Old); err != nil {
		return nil, nil, fmt.Errorf("old: %w", err)
	}
	if after, err = read(c.New); err != nil {
		return nil, nil, fmt.Errorf("new: %w", err)
	}
	if before == nil && after == nil {
		return nil, nil, fmt.Errorf("change without an object")
	}
	return before, after, nil
}

// recordingQueue is the scheduler's queue; it records the calls of the event handlers.
type recordingQueue struct {
	internalqueue.SchedulingQueue
	w                *world
	pod              *v1.Pod
	rejectingPlugins map[string]bool
	out              *HintResult
	err              error
}

// rejectingPlugins returns the names of the plugins that can reject a pod. A profile
// can disable all extension points at which a plugin rejects pods.
func rejectingPlugins(fw framework.Framework) map[string]bool {
	all := fw.ListPlugins()
	names := map[string]bool{}
	for _, set := range []schedconfig.PluginSet{all.PreEnqueue, all.PreFilter, all.Filter, all.Reserve, all.Permit} {
		for _, p := range set.Enabled {
			names[p.Name] = true
		}
	}
	return names
}

func (q *recordingQueue) MoveAllToActiveOrBackoffQueue(_ klog.Logger, event fwk.ClusterEvent, before, after interface{}, check internalqueue.PreEnqueueCheck) {
	q.record(event, q.pod, before, after, check != nil && !check(q.pod))
}

// Update records the events of a change of the waiting pod. The queue stores the
// new version before it calls the hints.
func (q *recordingQueue) Update(_ context.Context, before, after *v1.Pod) {
	if after.UID != q.pod.UID {
		return
	}
	for _, event := range framework.PodSchedulingPropertiesChange(after, before, true) {
		q.record(event, after, before, after, false)
	}
}

// record calls the hints of all registrations for an event and stores the verdicts.
func (q *recordingQueue) record(event fwk.ClusterEvent, pod *v1.Pod, before, after interface{}, excluded bool) {
	recorded := RecordedEvent{Event: event.Label(), Excluded: excluded, Hints: map[string]string{}}
	for _, plugin := range q.w.fw.EnqueueExtensions() {
		if !q.rejectingPlugins[plugin.Name()] {
			continue
		}
		registered, err := registrations(q.w.ctx, plugin)
		if err != nil {
			q.err = err
			return
		}
		for _, r := range registered {
			if !framework.MatchClusterEvents(r.Event, event) {
				continue
			}
			verdict := callHint(q.w.logger, r, pod, before, after)
			mergeVerdict(recorded.Hints, plugin.Name(), verdict)
			if !excluded {
				mergeVerdict(q.out.Verdicts, plugin.Name(), verdict)
			}
		}
	}
	q.out.Events = append(q.out.Events, recorded)
}

// callHint returns the verdict of a queueing hint; a registration without one requeues every pod.
func callHint(logger klog.Logger, r fwk.ClusterEventWithHint, pod *v1.Pod, before, after interface{}) string {
	if r.QueueingHintFn == nil {
		return hintQueue
	}
	hint, err := r.QueueingHintFn(logger, pod, before, after)
	switch {
	case err != nil:
		return hintError
	case hint == fwk.Queue:
		return hintQueue
	}
	return hintSkip
}

// mergeVerdict stores a verdict unless the stored one is already Queue or Error.
func mergeVerdict(verdicts map[string]string, plugin, verdict string) {
	if stored, ok := verdicts[plugin]; !ok || stored == hintSkip {
		verdicts[plugin] = verdict
	}
}

// registrations returns a plugin's registrations as buildQueueingHintMap does.
func registrations(ctx context.Context, plugin fwk.EnqueueExtensions) ([]fwk.ClusterEventWithHint, error) {
	events, err := plugin.EventsToRegister(ctx)
	if err != nil {
		return nil, err
	}
	var all []fwk.ClusterEventWithHint
	for _, e := range events {
		for _, event := range unrollEvent(e.Event) {
			all = append(all, fwk.ClusterEventWithHint{Event: event, QueueingHintFn: e.QueueingHintFn})
		}
	}
	return all, nil
}

// unrollEvent replaces an event of all pods by one for each of their three resources.
func unrollEvent(event fwk.ClusterEvent) []fwk.ClusterEvent {
	if event.Resource == fwk.Pod {
		return framework.UnrollPodEvent(event)
	}
	return []fwk.ClusterEvent{event}
}

// hints passes the change to the scheduler's own event handlers.
func hints(c *HintCase) (*HintResult, error) {
	before, after, err := c.Change.objects()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := build(ctx, &c.Case)
	if err != nil {
		return nil, err
	}
	defer w.sched.Profiles.Close()
	inner := w.sched.SchedulingQueue
	defer inner.Close()
	q := &recordingQueue{SchedulingQueue: inner, w: w, pod: c.Pod, rejectingPlugins: rejectingPlugins(w.fw), out: &HintResult{
		Name: c.Name, Events: []RecordedEvent{}, Verdicts: map[string]string{},
	}}
	w.sched.SchedulingQueue = q
	changed := after
	if changed == nil {
		changed = before
	}
	if err := w.factory.change(reflect.TypeOf(changed), before, after); err != nil {
		return nil, err
	}
	return q.out, q.err
}
