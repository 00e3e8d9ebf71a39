package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	testingclock "k8s.io/utils/clock/testing"
)

// The functions of the queue's two timers are not exported. Run cannot be used,
// because one of the timers uses the real clock.
//
//go:linkname flushBackoffQCompleted k8s.io/kubernetes/pkg/scheduler/backend/queue.(*PriorityQueue).flushBackoffQCompleted
func flushBackoffQCompleted(p *internalqueue.PriorityQueue, logger klog.Logger)

//go:linkname flushUnschedulableEntitiesLeftover k8s.io/kubernetes/pkg/scheduler/backend/queue.(*PriorityQueue).flushUnschedulableEntitiesLeftover
func flushUnschedulableEntitiesLeftover(p *internalqueue.PriorityQueue, logger klog.Logger)

// leftoverSeconds is the interval at which the queue moves pods that are unschedulable for too long.
const leftoverSeconds = 30

// sequenceStart is the time of the first step, on a whole second.
var sequenceStart = time.Unix(1_000_000_000, 0)

// QueueSequence is a line of the input of -queue: the calls of a queue, in order.
type QueueSequence struct {
	Name               string                     `json:"name"`
	InitialBackoffMs   int64                      `json:"initialBackoffMs"`
	MaxBackoffMs       int64                      `json:"maxBackoffMs"`
	MaxUnschedulableMs int64                      `json:"maxUnschedulableMs"`
	Profiles           map[string]SequenceProfile `json:"profiles"`
	Steps              []SequenceStep             `json:"steps"`
}

// SequenceStep is one step. Unused fields are absent.
type SequenceStep struct {
	Op          string          `json:"op"`
	Pod         *SequencePod    `json:"pod,omitempty"`
	Name        string          `json:"name,omitempty"`
	Set         json.RawMessage `json:"set,omitempty"`
	Nth         int             `json:"nth,omitempty"`
	Rejected    []string        `json:"rejected,omitempty"`
	Pending     []string        `json:"pending,omitempty"`
	Node        *string         `json:"node,omitempty"`
	Event       *SequenceEvent  `json:"event,omitempty"`
	MaxPriority *int32          `json:"maxPriority,omitempty"`
	ExcludedPod string          `json:"but,omitempty"`
	Names       []string        `json:"names,omitempty"`
	Closed      bool            `json:"closed,omitempty"`
	Ms          int64           `json:"ms,omitempty"`
}

// sequenceRun is a queue and the state of its environment.
type sequenceRun struct {
	ctx         context.Context
	logger      klog.Logger
	clock       *testingclock.FakeClock
	queue       *internalqueue.PriorityQueue
	specs       map[string]SequencePod     // last specification by name
	pods        map[string]*v1.Pod         // the API server's version by name
	generations map[string]int             // number of pods created with this name
	attempts    []*framework.QueuedPodInfo // pods in flight, in the order of popping
	done        map[string]bool            // pods, by UID, whose attempt continues after Done was called
	closed      map[string]bool            // pods, by name, that OuterGate and FaultGate reject
	profiles    map[string]SequenceProfile
}

var (
	emptyInformers = sync.OnceValue(func() informers.SharedInformerFactory {
		return informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	})
	// The metrics are shared by all sequences of the process.
	metricsLock sync.Mutex
)

func handleQueueSequence(line []byte, name *string) output {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var sequence QueueSequence
	if err := d.Decode(&sequence); err != nil {
		return output{err: fmt.Errorf("decoding: %w", err)}
	}
	*name = sequence.Name
	metricsLock.Lock()
	defer metricsLock.Unlock()
	res, err := runSequence(&sequence)
	if err != nil {
		return output{err: fmt.Errorf("%s: %w", sequence.Name, err)}
	}
	var v any = res
	if *flagGolden {
		v = golden{json.RawMessage(bytes.TrimSpace(line)), res}
	}
	out, err := marshal(v)
	return output{out: out, err: err}
}

func newSequenceRun(ctx context.Context, sequence *QueueSequence) *sequenceRun {
	run := &sequenceRun{
		ctx: ctx, logger: klog.FromContext(ctx),
		clock: testingclock.NewFakeClock(sequenceStart),
		specs: map[string]SequencePod{}, pods: map[string]*v1.Pod{}, generations: map[string]int{},
		done: map[string]bool{}, closed: map[string]bool{}, profiles: sequence.Profiles,
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	run.queue = internalqueue.NewPriorityQueue(lessInQueue, emptyInformers(),
		internalqueue.WithClock(run.clock),
		internalqueue.WithPodInitialBackoffDuration(ms(sequence.InitialBackoffMs)),
		internalqueue.WithPodMaxBackoffDuration(ms(sequence.MaxBackoffMs)),
		internalqueue.WithPodMaxInUnschedulablePodsDuration(ms(sequence.MaxUnschedulableMs)),
		internalqueue.WithPodLister(podLister{run}),
		internalqueue.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Second, ctx.Done())),
		internalqueue.WithPluginMetricsSamplePercent(0),
		internalqueue.WithPreEnqueuePluginMap(run.gates()),
		internalqueue.WithQueueingHintMapPerProfile(run.hints()),
	)
	return run
}

// runSequence runs all steps of a sequence.
func runSequence(sequence *QueueSequence) (*SequenceResult, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run := newSequenceRun(ctx, sequence)
	metrics.SchedulerQueueIncomingPods.Reset()
	defer run.queue.Close()
	res := &SequenceResult{Name: sequence.Name, Dumps: []QueueDump{}}
	for n, step := range sequence.Steps {
		popped, err := run.runStep(&step)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", n, err)
		}
		res.Dumps = append(res.Dumps, run.dump(popped))
	}
	return res, readMetrics(res)
}

// runStep runs one step. It makes the same calls of the queue as the scheduler's
// event handlers and failure handler.
func (run *sequenceRun) runStep(s *SequenceStep) (popped string, err error) {
	switch s.Op {
	case "add", "appear":
		run.createPod(*s.Pod, s.Op == "appear")
	case "update":
		err = run.updatePod(s)
	case "delete":
		run.deletePod(s.Name)
	case "recreate":
		if spec, ok := run.specs[s.Name]; ok {
			run.deletePod(s.Name)
			run.createPod(spec, false)
		}
	case "pop":
		popped, err = run.pop()
	case "fail":
		err = run.failAttempt(s)
	case "permitted":
		if pInfo := run.nthAttempt(s.Nth); pInfo != nil {
			run.done[string(pInfo.Pod.UID)] = true
			run.queue.Done(pInfo.Pod.UID)
		}
	case "bound":
		run.bindPod(s.Nth)
	case "event":
		run.applyEvent(s)
	case "activate":
		pods := map[string]*v1.Pod{}
		for _, name := range s.Names {
			if pod, ok := run.pods[name]; ok {
				pods[name] = pod
			}
		}
		run.queue.Activate(run.logger, pods)
	case "nominate":
		if pod, ok := run.pods[s.Name]; ok {
			pi, _ := framework.NewPodInfo(pod)
			run.queue.AddNominatedPod(run.logger, pi, nominatingInfo(s.Node))
		}
	case "unnominate":
		if pod, ok := run.pods[s.Name]; ok {
			run.queue.DeleteNominatedPodIfExists(pod)
		}
	case "gate":
		run.closed[s.Name] = s.Closed
	case "advance":
		run.advance(time.Duration(s.Ms) * time.Millisecond)
	default:
		err = fmt.Errorf("unknown op %q", s.Op)
	}
	return popped, err
}

// createPod creates a pod unless one with its name exists. With byUpdate the queue
// receives it as an update.
func (run *sequenceRun) createPod(spec SequencePod, byUpdate bool) {
	if _, ok := run.pods[spec.Name]; ok {
		return
	}
	run.generations[spec.Name]++
	pod := spec.pod(run.generations[spec.Name])
	run.specs[spec.Name], run.pods[spec.Name] = spec, pod
	if byUpdate {
		run.queue.Update(run.ctx, pod, pod)
	} else {
		run.queue.Add(run.ctx, pod)
	}
}

func (run *sequenceRun) updatePod(s *SequenceStep) error {
	old, ok := run.pods[s.Name]
	if !ok {
		return nil
	}
	spec := run.specs[s.Name]
	labels := spec.Labels
	spec.Labels = nil // otherwise the decoder would add to the existing labels
	if err := json.Unmarshal(s.Set, &spec); err != nil {
		return err
	}
	if spec.Labels == nil {
		spec.Labels = labels
	}
	pod := spec.pod(run.generations[s.Name])
	run.specs[s.Name], run.pods[s.Name] = spec, pod
	if !run.done[string(pod.UID)] { // event handlers do not pass updates of assumed pods to the queue
		run.queue.Update(run.ctx, old, pod)
	}
	return nil
}

func (run *sequenceRun) deletePod(name string) {
	if pod, ok := run.pods[name]; ok {
		delete(run.pods, name)
		delete(run.specs, name)
		run.queue.Delete(run.logger, pod)
	}
}

// pop pops a pod and returns its UID, or "" if Pop would block.
func (run *sequenceRun) pop() (string, error) {
	ready := len(run.queue.PodsInActiveQ())
	for _, pod := range run.queue.PodsInBackoffQ() {
		if pInfo, ok := run.queue.GetPod(pod.Name, pod.Namespace, nil); ok && len(rejectors(pInfo)) > 0 {
			ready++
		}
	}
	if ready == 0 {
		return "", nil
	}
	entity, err := run.queue.Pop(run.logger)
	if err != nil {
		return "", err
	}
	pInfo := entity.(*framework.QueuedPodInfo)
	run.attempts = append(run.attempts, pInfo)
	return string(pInfo.Pod.UID), nil
}

// nthAttempt returns the attempt with this number modulo their number, or nil.
func (run *sequenceRun) nthAttempt(n int) *framework.QueuedPodInfo {
	if len(run.attempts) == 0 {
		return nil
	}
	return run.attempts[n%len(run.attempts)]
}

// endAttempt removes an attempt from those in flight and returns it, or nil.
func (run *sequenceRun) endAttempt(n int) *framework.QueuedPodInfo {
	pInfo := run.nthAttempt(n)
	if pInfo != nil {
		n %= len(run.attempts)
		run.attempts = append(run.attempts[:n:n], run.attempts[n+1:]...)
		delete(run.done, string(pInfo.Pod.UID))
	}
	return pInfo
}

// failAttempt makes the same calls of the queue as handleSchedulingFailure.
func (run *sequenceRun) failAttempt(s *SequenceStep) error {
	pInfo := run.endAttempt(s.Nth)
	if pInfo == nil {
		return nil
	}
	pInfo.ClearRejectorPlugins()
	pInfo.UnschedulablePlugins, pInfo.PendingPlugins = sets.New(s.Rejected...), sets.New(s.Pending...)
	current, ok := run.pods[pInfo.Pod.Name]
	switch {
	case !ok:
		run.queue.Done(pInfo.Pod.UID)
	case current.UID != pInfo.Pod.UID:
		run.queue.Done(pInfo.Pod.UID)
		return nil
	default:
		pInfo.PodInfo, _ = framework.NewPodInfo(current.DeepCopy())
		if err := run.queue.AddUnschedulablePodIfNotPresent(run.logger, pInfo, run.queue.SchedulingCycle()); err != nil {
			return err
		}
	}
	run.queue.AddNominatedPod(run.logger, pInfo.PodInfo, nominatingInfo(s.Node))
	return nil
}

// bindPod ends an attempt as a successful binding does.
func (run *sequenceRun) bindPod(n int) {
	if pInfo := run.endAttempt(n); pInfo != nil {
		run.queue.Done(pInfo.Pod.UID)
		if current, ok := run.pods[pInfo.Pod.Name]; ok && current.UID == pInfo.Pod.UID {
			run.deletePod(pInfo.Pod.Name)
		}
	}
}

// applyEvent passes a change of an object to the queue.
func (run *sequenceRun) applyEvent(s *SequenceStep) {
	before, after := s.Event.objects()
	var check internalqueue.PreEnqueueCheck
	if s.MaxPriority != nil || s.ExcludedPod != "" {
		check = func(pod *v1.Pod) bool {
			return (s.MaxPriority == nil || *pod.Spec.Priority <= *s.MaxPriority) && (s.ExcludedPod == "" || pod.Name != s.ExcludedPod)
		}
	}
	run.queue.MoveAllToActiveOrBackoffQueue(run.logger, s.Event.clusterEvent(), before, after, check)
}

// advance advances the clock and flushes the queue at the ticks of Run.
func (run *sequenceRun) advance(by time.Duration) {
	end := run.clock.Now().Add(by)
	for {
		next := run.clock.Now().Truncate(time.Second).Add(time.Second)
		if next.After(end) {
			break
		}
		run.clock.SetTime(next)
		flushBackoffQCompleted(run.queue, run.logger)
		if int64(next.Sub(sequenceStart).Seconds())%leftoverSeconds == 0 {
			flushUnschedulableEntitiesLeftover(run.queue, run.logger)
		}
	}
	run.clock.SetTime(end)
}

// nominatingInfo returns the nomination of an attempt; nil keeps the nomination of
// the pod's status.
func nominatingInfo(node *string) *fwk.NominatingInfo {
	if node == nil {
		return nil
	}
	return &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: *node}
}
