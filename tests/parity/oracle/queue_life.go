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

// lifeStart is the time of the first step, on a whole second.
var lifeStart = time.Unix(1_000_000_000, 0)

// QueueLife is a line of the input of -queue: the calls of a queue, in order.
type QueueLife struct {
	Name               string                 `json:"name"`
	InitialBackoffMs   int64                  `json:"initialBackoffMs"`
	MaxBackoffMs       int64                  `json:"maxBackoffMs"`
	MaxUnschedulableMs int64                  `json:"maxUnschedulableMs"`
	Profiles           map[string]LifeProfile `json:"profiles"`
	Steps              []LifeStep             `json:"steps"`
}

// LifeStep is one step. Unused fields are absent.
type LifeStep struct {
	Op          string          `json:"op"`
	Pod         *LifePod        `json:"pod,omitempty"`
	Name        string          `json:"name,omitempty"`
	Set         json.RawMessage `json:"set,omitempty"`
	Nth         int             `json:"nth,omitempty"`
	Rejected    []string        `json:"rejected,omitempty"`
	Pending     []string        `json:"pending,omitempty"`
	Node        *string         `json:"node,omitempty"`
	Event       *LifeEvent      `json:"event,omitempty"`
	MaxPriority *int32          `json:"maxPriority,omitempty"`
	But         string          `json:"but,omitempty"`
	Names       []string        `json:"names,omitempty"`
	Closed      bool            `json:"closed,omitempty"`
	Ms          int64           `json:"ms,omitempty"`
}

// life is a queue and its environment.
type life struct {
	ctx      context.Context
	logger   klog.Logger
	clock    *testingclock.FakeClock
	queue    *internalqueue.PriorityQueue
	told     map[string]LifePod // last specification by name
	world    map[string]*v1.Pod // the API server's version by name
	born     map[string]int     // number of pods with this name so far
	flying   []*framework.QueuedPodInfo
	settled  map[string]bool // attempts for which Done was called before they ended
	closed   map[string]bool // pods that OuterGate and FaultGate reject
	profiles map[string]LifeProfile
}

var (
	lifeInformers = sync.OnceValue(func() informers.SharedInformerFactory {
		return informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	})
	// The metrics are shared by all sequences of the process.
	lifeLock sync.Mutex
)

func handleQueueLife(line []byte, name *string) answer {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var given QueueLife
	if err := d.Decode(&given); err != nil {
		return answer{err: fmt.Errorf("decoding: %w", err)}
	}
	*name = given.Name
	lifeLock.Lock()
	defer lifeLock.Unlock()
	res, err := live(&given)
	if err != nil {
		return answer{err: fmt.Errorf("%s: %w", given.Name, err)}
	}
	var v any = res
	if *flagGolden {
		v = golden{json.RawMessage(bytes.TrimSpace(line)), res}
	}
	out, err := marshal(v)
	return answer{out: out, err: err}
}

func newLife(ctx context.Context, given *QueueLife) *life {
	l := &life{
		ctx: ctx, logger: klog.FromContext(ctx),
		clock: testingclock.NewFakeClock(lifeStart),
		told:  map[string]LifePod{}, world: map[string]*v1.Pod{}, born: map[string]int{},
		settled: map[string]bool{}, closed: map[string]bool{}, profiles: given.Profiles,
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	l.queue = internalqueue.NewPriorityQueue(lifeLess, lifeInformers(),
		internalqueue.WithClock(l.clock),
		internalqueue.WithPodInitialBackoffDuration(ms(given.InitialBackoffMs)),
		internalqueue.WithPodMaxBackoffDuration(ms(given.MaxBackoffMs)),
		internalqueue.WithPodMaxInUnschedulablePodsDuration(ms(given.MaxUnschedulableMs)),
		internalqueue.WithPodLister(lifeLister{l}),
		internalqueue.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Second, ctx.Done())),
		internalqueue.WithPluginMetricsSamplePercent(0),
		internalqueue.WithPreEnqueuePluginMap(l.gates()),
		internalqueue.WithQueueingHintMapPerProfile(l.hints()),
	)
	return l
}

func live(given *QueueLife) (*LifeResult, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := newLife(ctx, given)
	metrics.SchedulerQueueIncomingPods.Reset()
	defer l.queue.Close()
	res := &LifeResult{Name: given.Name, Dumps: []LifeDump{}}
	for n, step := range given.Steps {
		popped, err := l.take(&step)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", n, err)
		}
		res.Dumps = append(res.Dumps, l.dump(popped))
	}
	return res, l.count(res)
}

// take runs one step. It makes the same calls of the queue as the scheduler's
// event handlers and failure handler.
func (l *life) take(s *LifeStep) (popped string, err error) {
	switch s.Op {
	case "add", "appear":
		l.come(*s.Pod, s.Op == "appear")
	case "update":
		err = l.update(s)
	case "delete":
		l.remove(s.Name)
	case "recreate":
		if told, ok := l.told[s.Name]; ok {
			l.remove(s.Name)
			l.come(told, false)
		}
	case "pop":
		popped, err = l.pop()
	case "fail":
		err = l.fail(s)
	case "permitted":
		if pInfo := l.nth(s.Nth); pInfo != nil {
			l.settled[string(pInfo.Pod.UID)] = true
			l.queue.Done(pInfo.Pod.UID)
		}
	case "bound":
		l.bound(s.Nth)
	case "event":
		l.happen(s)
	case "activate":
		pods := map[string]*v1.Pod{}
		for _, name := range s.Names {
			if pod, ok := l.world[name]; ok {
				pods[name] = pod
			}
		}
		l.queue.Activate(l.logger, pods)
	case "nominate":
		if pod, ok := l.world[s.Name]; ok {
			pi, _ := framework.NewPodInfo(pod)
			l.queue.AddNominatedPod(l.logger, pi, nominating(s.Node))
		}
	case "unnominate":
		if pod, ok := l.world[s.Name]; ok {
			l.queue.DeleteNominatedPodIfExists(pod)
		}
	case "gate":
		l.closed[s.Name] = s.Closed
	case "advance":
		l.advance(time.Duration(s.Ms) * time.Millisecond)
	default:
		err = fmt.Errorf("unknown op %q", s.Op)
	}
	return popped, err
}

func (l *life) come(told LifePod, byUpdate bool) {
	if _, ok := l.world[told.Name]; ok {
		return
	}
	l.born[told.Name]++
	pod := told.pod(l.born[told.Name])
	l.told[told.Name], l.world[told.Name] = told, pod
	if byUpdate {
		l.queue.Update(l.ctx, pod, pod)
	} else {
		l.queue.Add(l.ctx, pod)
	}
}

func (l *life) update(s *LifeStep) error {
	old, ok := l.world[s.Name]
	if !ok {
		return nil
	}
	told := l.told[s.Name]
	labels := told.Labels
	told.Labels = nil // otherwise the decoder would add to the existing labels
	if err := json.Unmarshal(s.Set, &told); err != nil {
		return err
	}
	if told.Labels == nil {
		told.Labels = labels
	}
	pod := told.pod(l.born[s.Name])
	l.told[s.Name], l.world[s.Name] = told, pod
	if !l.settled[string(pod.UID)] { // event handlers do not pass updates of assumed pods to the queue
		l.queue.Update(l.ctx, old, pod)
	}
	return nil
}

func (l *life) remove(name string) {
	if pod, ok := l.world[name]; ok {
		delete(l.world, name)
		delete(l.told, name)
		l.queue.Delete(l.logger, pod)
	}
}

func (l *life) pop() (string, error) {
	ready := len(l.queue.PodsInActiveQ())
	for _, pod := range l.queue.PodsInBackoffQ() {
		if pInfo, ok := l.queue.GetPod(pod.Name, pod.Namespace, nil); ok && len(rejectors(pInfo)) > 0 {
			ready++
		}
	}
	if ready == 0 {
		return "", nil // Pop would block
	}
	entity, err := l.queue.Pop(l.logger)
	if err != nil {
		return "", err
	}
	pInfo := entity.(*framework.QueuedPodInfo)
	l.flying = append(l.flying, pInfo)
	return string(pInfo.Pod.UID), nil
}

func (l *life) nth(n int) *framework.QueuedPodInfo {
	if len(l.flying) == 0 {
		return nil
	}
	return l.flying[n%len(l.flying)]
}

func (l *life) land(n int) *framework.QueuedPodInfo {
	pInfo := l.nth(n)
	if pInfo != nil {
		n %= len(l.flying)
		l.flying = append(l.flying[:n:n], l.flying[n+1:]...)
		delete(l.settled, string(pInfo.Pod.UID))
	}
	return pInfo
}

// fail makes the same calls of the queue as handleSchedulingFailure.
func (l *life) fail(s *LifeStep) error {
	pInfo := l.land(s.Nth)
	if pInfo == nil {
		return nil
	}
	pInfo.ClearRejectorPlugins()
	pInfo.UnschedulablePlugins, pInfo.PendingPlugins = sets.New(s.Rejected...), sets.New(s.Pending...)
	known, ok := l.world[pInfo.Pod.Name]
	switch {
	case !ok:
		l.queue.Done(pInfo.Pod.UID)
	case known.UID != pInfo.Pod.UID:
		l.queue.Done(pInfo.Pod.UID)
		return nil
	default:
		pInfo.PodInfo, _ = framework.NewPodInfo(known.DeepCopy())
		if err := l.queue.AddUnschedulablePodIfNotPresent(l.logger, pInfo, l.queue.SchedulingCycle()); err != nil {
			return err
		}
	}
	l.queue.AddNominatedPod(l.logger, pInfo.PodInfo, nominating(s.Node))
	return nil
}

func (l *life) bound(n int) {
	if pInfo := l.land(n); pInfo != nil {
		l.queue.Done(pInfo.Pod.UID)
		if known, ok := l.world[pInfo.Pod.Name]; ok && known.UID == pInfo.Pod.UID {
			l.remove(pInfo.Pod.Name)
		}
	}
}

func (l *life) happen(s *LifeStep) {
	before, after := s.Event.objects()
	var check internalqueue.PreEnqueueCheck
	if s.MaxPriority != nil || s.But != "" {
		check = func(pod *v1.Pod) bool {
			return (s.MaxPriority == nil || *pod.Spec.Priority <= *s.MaxPriority) && (s.But == "" || pod.Name != s.But)
		}
	}
	l.queue.MoveAllToActiveOrBackoffQueue(l.logger, s.Event.clusterEvent(), before, after, check)
}

// advance advances the clock and flushes the queue at the ticks of Run.
func (l *life) advance(by time.Duration) {
	until := l.clock.Now().Add(by)
	for {
		next := l.clock.Now().Truncate(time.Second).Add(time.Second)
		if next.After(until) {
			break
		}
		l.clock.SetTime(next)
		flushBackoffQCompleted(l.queue, l.logger)
		if int64(next.Sub(lifeStart).Seconds())%leftoverSeconds == 0 {
			flushUnschedulableEntitiesLeftover(l.queue, l.logger)
		}
	}
	l.clock.SetTime(until)
}

// nominating returns the nomination of an attempt; nil keeps the nomination of
// the pod's status.
func nominating(node *string) *fwk.NominatingInfo {
	if node == nil {
		return nil
	}
	return &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: *node}
}
