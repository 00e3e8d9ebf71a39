package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Verdict is a status of the framework that is not success.
type Verdict struct {
	Code    string   `json:"code"`
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// PreFilterVerdict is a status of PreFilter that ends the cycle.
type PreFilterVerdict struct {
	Status  string   `json:"status"`
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// PluginScore is the score of a node by a Score plugin.
type PluginScore struct {
	Raw      int64 `json:"raw"`
	Weighted int64 `json:"weighted"`
}

// PreemptionCandidate is the result of a dry run for one node.
type PreemptionCandidate struct {
	Victims       []string `json:"victims"`
	PDBViolations int64    `json:"pdbViolations"`
}

// Preemption is the result of PostFilter.
type Preemption struct {
	NominatedNode string   `json:"nominatedNode"`
	Victims       []string `json:"victims"`
}

// Result is one line of the output.
type Result struct {
	Name              string                             `json:"name"`
	Gated             *Verdict                           `json:"gated"`
	PreFilter         *PreFilterVerdict                  `json:"prefilter"`
	PreFilterNodes    []string                           `json:"prefilterNodes"`
	NominatedOnly     bool                               `json:"nominatedOnly"`
	Filter            map[string]Verdict                 `json:"filter"`
	Feasible          []string                           `json:"feasible"`
	Scores            map[string]map[string]*PluginScore `json:"scores"`
	Totals            map[string]int64                   `json:"totals"`
	Best              []string                           `json:"best"`
	Message           *string                            `json:"message"`
	PostFilter        *Preemption                        `json:"postFilter"`
	PreemptionMessage *string                            `json:"preemptionMessage"`
	PostFilterCode    string                             `json:"postFilterCode"`
	Candidates        map[string]PreemptionCandidate     `json:"candidates"`
	Cleared           []string                           `json:"clearedNominations"`
	// Allocations has the final state of each claim of the pod, by node that
	// the pod is bound to and by claim.
	Allocations map[string]map[string]*ClaimOutcome `json:"allocations,omitempty"`
	Deallocated []string                            `json:"deallocated,omitempty"`
	Error       string                              `json:"error,omitempty"`
	Ambiguous   bool                                `json:"ambiguous,omitempty"`
}

var registry = plugins.NewInTreeRegistry()

// world is a scheduler that has all objects of a case in its cache.
type world struct {
	ctx     context.Context
	logger  klog.Logger
	cfg     *schedconfig.KubeSchedulerConfiguration
	client  *fake.Clientset
	factory *staticFactory
	sched   *scheduler.Scheduler
	fw      framework.Framework
	snap    *internalcache.Snapshot
	objs    []runtime.Object
	second  *secondHandle

	mu      sync.Mutex
	deleted []string
	cleared []string
	claims  *claimWrites

	waiting   atomic.Bool
	onPending func()
}

func build(ctx context.Context, c *Case) (*world, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	w := &world{ctx: ctx, logger: klog.FromContext(ctx), cfg: cfg}
	objs := c.objects()
	w.objs = objs
	w.client = fake.NewSimpleClientset()
	byKey := map[string]*v1.Pod{}
	for _, o := range objs {
		if p, ok := o.(*v1.Pod); ok {
			byKey[p.Namespace+"/"+p.Name] = p
		}
	}
	w.client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d := a.(clienttesting.DeleteAction)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.deleted = append(w.deleted, d.GetNamespace()+"/"+d.GetName())
		return true, nil, nil
	})
	w.client.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		g := a.(clienttesting.GetAction)
		if p, ok := byKey[g.GetNamespace()+"/"+g.GetName()]; ok {
			return true, p.DeepCopy(), nil
		}
		return false, nil, nil
	})
	w.client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pa := a.(clienttesting.PatchAction)
		key := pa.GetNamespace() + "/" + pa.GetName()
		p, ok := byKey[key]
		if !ok {
			return false, nil, nil
		}
		if p.Spec.NodeName == "" && p.Status.NominatedNodeName != "" && strings.Contains(string(pa.GetPatch()), `"nominatedNodeName":null`) {
			w.mu.Lock()
			w.cleared = append(w.cleared, key)
			w.mu.Unlock()
		}
		return true, p.DeepCopy(), nil
	})
	w.factory = newStaticFactory(scheduler.NewInformerFactory(w.client, 0, nil), objs)
	w.addClaimReactors(w.client, c.Pod, func(rc *resourcev1.ResourceClaim) { w.factory.addCreated(rc) })
	w.sched, err = scheduler.New(ctx, w.client, w.factory, nil,
		func(string) events.EventRecorderLogger { return &recorder{w: w} },
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithComponentConfigVersion(cfg.TypeMeta.APIVersion),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	w.factory.deliver(&v1.Namespace{}, &v1.Node{}, &v1.Pod{})
	name := c.Pod.Spec.SchedulerName
	if name == "" {
		name = v1.DefaultSchedulerName
	}
	var ok bool
	if w.fw, ok = w.sched.Profiles[name]; !ok {
		return nil, fmt.Errorf("no profile for schedulerName %q", name)
	}
	if w.snap, ok = w.fw.SnapshotSharedLister().(*internalcache.Snapshot); !ok {
		return nil, fmt.Errorf("snapshot of unknown type %T", w.fw.SnapshotSharedLister())
	}
	return w, w.sched.Cache.UpdateSnapshot(w.logger, w.snap)
}

// pluginPanic stores the panic of a plugin in a goroutine of the framework, which
// would terminate kube-scheduler.
type pluginPanic struct{ message atomic.Value }

type pluginPanicKey struct{}

func init() {
	utilruntime.ReallyCrash = false
	utilruntime.PanicHandlers = []func(context.Context, interface{}){func(ctx context.Context, value interface{}) {
		if caught, ok := ctx.Value(pluginPanicKey{}).(*pluginPanic); ok {
			caught.message.Store(fmt.Sprint(value))
		}
	}}
}

func decide(c *Case) (*Result, error) {
	caught := &pluginPanic{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), pluginPanicKey{}, caught))
	defer cancel()
	w, err := build(ctx, c)
	if err != nil {
		return nil, err
	}
	defer w.sched.Profiles.Close()
	defer w.sched.SchedulingQueue.Close()
	r := &Result{
		Name:       c.Name,
		Filter:     map[string]Verdict{},
		Feasible:   []string{},
		Scores:     map[string]map[string]*PluginScore{},
		Totals:     map[string]int64{},
		Best:       []string{},
		Candidates: map[string]PreemptionCandidate{},
		Cleared:    []string{},
	}
	pod := c.Pod
	for _, p := range w.fw.PreEnqueuePlugins() {
		if s := p.PreEnqueue(ctx, pod); !s.IsSuccess() {
			v := verdict(s)
			v.Plugin = p.Name()
			r.Gated = &v
			return r, nil
		}
	}

	// First the scheduler's own scheduling cycle, with a separate state.
	podInfo, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	queued := &framework.QueuedPodInfo{PodInfo: podInfo, QueueingParams: framework.QueueingParams{Timestamp: now, InitialAttemptTimestamp: &now, Attempts: 1}}
	state := framework.NewCycleState()
	scheduled, schedErr := w.sched.SchedulePod(ctx, w.fw, state, queued)

	// Then the same steps one by one, to record the result of each plugin.
	steps := framework.NewCycleState()
	if err := w.runSteps(steps, pod, r, schedErr == nil && scheduled.EvaluatedNodes == 1 && scheduled.FeasibleNodes == 1 &&
		pod.Status.NominatedNodeName != "" && scheduled.SuggestedHost == pod.Status.NominatedNodeName); err != nil {
		return nil, err
	}
	if value := caught.message.Load(); value != nil {
		msg := fmt.Sprintf("panic: %v", value)
		return failed(r.Name, msg, true), nil
	}
	if schedErr == nil {
		// Without Score plugins the scheduler stops at the first feasible node.
		want := len(r.Feasible)
		if !w.fw.HasScorePlugins() {
			want = 1
		}
		if scheduled.FeasibleNodes != want || !slices.Contains(r.Feasible, scheduled.SuggestedHost) {
			return nil, fmt.Errorf("the scheduling cycle found %d feasible nodes and selected %q; the steps found %v", scheduled.FeasibleNodes, scheduled.SuggestedHost, r.Feasible)
		}
		if r.Error == "" && len(r.Feasible) > 1 && w.fw.HasScorePlugins() && !slices.Contains(r.Best, scheduled.SuggestedHost) {
			return nil, fmt.Errorf("the scheduling cycle selected %q; the steps selected %v of %v", scheduled.SuggestedHost, r.Best, r.Totals)
		}
		if c.hasDRA() && r.Error == "" {
			return r, c.allocations(w, r)
		}
		return r, nil
	}
	if len(r.Feasible) > 0 && r.Error == "" {
		return nil, fmt.Errorf("the scheduling cycle failed (%v); the steps found %v", schedErr, r.Feasible)
	}
	msg := schedErr.Error()
	r.Message = &msg
	var fit *framework.FitError
	if !errors.As(schedErr, &fit) {
		if !errors.Is(schedErr, scheduler.ErrNoNodesAvailable) {
			// An error ends the attempt. The number of nodes that were
			// filtered before depends on the parallelism.
			*r = *failed(r.Name, msg, strings.Contains(msg, "timed out"))
		}
		return r, nil
	}
	if err := w.compareDiagnosis(r, fit); err != nil {
		return nil, err
	}
	if !w.fw.HasPostFilterPlugins() {
		return r, nil
	}
	return r, w.preempt(c, state, fit, r)
}

// failed returns the result of an attempt that ends with an internal error.
func failed(name, msg string, ambiguous bool) *Result {
	return &Result{
		Name: name, Error: msg, Message: &msg, Ambiguous: ambiguous,
		Filter: map[string]Verdict{}, Feasible: []string{}, Scores: map[string]map[string]*PluginScore{},
		Totals: map[string]int64{}, Best: []string{}, Candidates: map[string]PreemptionCandidate{}, Cleared: []string{},
	}
}

// verdict converts a status. Its reasons are sorted, because NodeResourcesFit
// lists several scalar resources in the order of a Go map.
func verdict(s *fwk.Status) Verdict {
	return Verdict{Code: s.Code().String(), Plugin: s.Plugin(), Reasons: sorted(s.Reasons())}
}

// runSteps runs PreFilter, Filter, PreScore and Score.
func (w *world) runSteps(state *framework.CycleState, pod *v1.Pod, r *Result, nominatedOnly bool) error {
	all, err := w.snap.NodeInfos().List()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return nil
	}
	preFilterResult, status, preFilterPlugins := w.fw.RunPreFilterPlugins(w.ctx, state, pod)
	if !status.IsSuccess() {
		r.PreFilter = &PreFilterVerdict{Status: status.Code().String(), Plugin: status.Plugin(), Reasons: sorted(status.Reasons())}
		if !status.IsRejected() {
			r.Error = status.Message()
		}
		return nil
	}
	if !preFilterResult.AllNodes() {
		r.PreFilterNodes = sorted(preFilterResult.NodeNames.UnsortedList())
	}
	var feasible []fwk.NodeInfo
	for _, ni := range all {
		name := ni.Node().Name
		if nominatedOnly {
			if name != pod.Status.NominatedNodeName {
				continue
			}
			r.NominatedOnly = true
		} else if r.PreFilterNodes != nil && !preFilterResult.NodeNames.Has(name) {
			by := sorted(preFilterPlugins.UnsortedList())
			r.Filter[name] = Verdict{
				Code:    fwk.UnschedulableAndUnresolvable.String(),
				Reasons: []string{fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", by)},
			}
			continue
		}
		s := w.fw.RunFilterPluginsWithNominatedPods(w.ctx, state, pod, ni)
		if s.IsSuccess() {
			feasible = append(feasible, ni)
			r.Feasible = append(r.Feasible, name)
			continue
		}
		r.Filter[name] = verdict(s)
		if !s.IsRejected() {
			r.Error = s.Message()
		}
	}
	sort.Strings(r.Feasible)
	if len(feasible) == 0 {
		return nil
	}
	if !w.fw.HasScorePlugins() {
		r.Best = append(r.Best, r.Feasible...)
		return nil
	}
	if s := w.fw.RunPreScorePlugins(w.ctx, state, pod, feasible); !s.IsSuccess() {
		r.Error = s.AsError().Error()
		return nil
	}
	totals, s := w.fw.RunScorePlugins(w.ctx, state, pod, feasible)
	if !s.IsSuccess() {
		r.Error = s.AsError().Error()
		return nil
	}
	if caught, ok := w.ctx.Value(pluginPanicKey{}).(*pluginPanic); ok && caught.message.Load() != nil {
		return nil
	}
	top := int64(0)
	for i, n := range totals {
		r.Totals[n.Name] = n.TotalScore
		sum := int64(0)
		for _, ps := range n.Scores {
			if r.Scores[ps.Name] == nil {
				r.Scores[ps.Name] = map[string]*PluginScore{}
			}
			r.Scores[ps.Name][n.Name] = &PluginScore{Weighted: ps.Score}
			sum += ps.Score
		}
		if sum != n.TotalScore {
			return fmt.Errorf("%s: total %d, sum of plugins %d", n.Name, n.TotalScore, sum)
		}
		if i == 0 || n.TotalScore > top {
			top = n.TotalScore
		}
	}
	for n, t := range r.Totals {
		if t == top {
			r.Best = append(r.Best, n)
		}
	}
	sort.Strings(r.Best)
	skip := state.GetSkipScorePlugins()
	for name, byNode := range r.Scores {
		if skip.Has(name) {
			delete(r.Scores, name)
			for _, ps := range byNode {
				if ps.Weighted != 0 {
					return fmt.Errorf("%s was skipped and scored", name)
				}
			}
			continue
		}
		pl, err := w.newScorePlugin(name)
		if err != nil {
			return err
		}
		for _, ni := range feasible {
			raw, s := pl.Score(w.ctx, state, pod, ni)
			if !s.IsSuccess() {
				return fmt.Errorf("%s: score: %v", name, s.AsError())
			}
			byNode[ni.Node().Name].Raw = raw
		}
	}
	return nil
}

// secondHandle is the framework with separate informers, because a plugin may
// add an index to an informer, which is possible only once.
type secondHandle struct {
	framework.Framework
	factory informers.SharedInformerFactory
}

func (h *secondHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// newScorePlugin creates a second instance of a Score plugin with the same arguments,
// which can read the cycle state that PreScore of the first one wrote.
func (w *world) newScorePlugin(name string) (fwk.ScorePlugin, error) {
	var args runtime.Object
	for _, prof := range w.cfg.Profiles {
		if prof.SchedulerName != w.fw.ProfileName() {
			continue
		}
		for _, pc := range prof.PluginConfig {
			if pc.Name == name {
				args = pc.Args
			}
		}
	}
	f, ok := registry[name]
	if !ok {
		return nil, fmt.Errorf("no plugin %s", name)
	}
	if w.second == nil {
		factory := newStaticFactory(scheduler.NewInformerFactory(w.client, 0, nil), w.objs)
		factory.deliver()
		w.second = &secondHandle{w.fw, factory}
	}
	pl, err := f(w.ctx, args, w.second)
	if err != nil {
		return nil, err
	}
	s, ok := pl.(fwk.ScorePlugin)
	if !ok {
		return nil, fmt.Errorf("%s is not a Score plugin", name)
	}
	return s, nil
}

var _ frameworkruntime.Registry = registry

// compareDiagnosis compares the diagnosis of the scheduling cycle with r.
func (w *world) compareDiagnosis(r *Result, fit *framework.FitError) error {
	if r.PreFilter != nil {
		s := fit.Diagnosis.NodeToStatus.AbsentNodesStatus()
		if s.Code().String() != r.PreFilter.Status || s.Plugin() != r.PreFilter.Plugin || !slices.Equal(sorted(s.Reasons()), r.PreFilter.Reasons) {
			return fmt.Errorf("PreFilter: the scheduling cycle returned %v, the steps %v", s, r.PreFilter)
		}
		return nil
	}
	for name, v := range r.Filter {
		s := fit.Diagnosis.NodeToStatus.Get(name)
		got := verdict(s)
		if got.Code != v.Code || got.Plugin != v.Plugin || !slices.Equal(got.Reasons, v.Reasons) {
			return fmt.Errorf("%s: the scheduling cycle returned %+v, the steps %+v", name, got, v)
		}
	}
	return nil
}

// candidatesByNode returns the results of dry runs by node.
func candidatesByNode(found []preemption.Candidate) map[string]PreemptionCandidate {
	candidates := map[string]PreemptionCandidate{}
	for _, cand := range found {
		candidates[cand.Name()] = PreemptionCandidate{
			Victims:       podKeys(cand.Victims().Pods),
			PDBViolations: cand.Victims().NumPDBViolations,
		}
	}
	return candidates
}

func (w *world) preempt(c *Case, state fwk.CycleState, fit *framework.FitError, r *Result) error {
	var dp *defaultpreemption.DefaultPreemption
	for _, p := range w.fw.PreEnqueuePlugins() {
		if d, ok := p.(*defaultpreemption.DefaultPreemption); ok {
			dp = d
		}
	}
	preempting := slices.ContainsFunc(w.fw.ListPlugins().PostFilter.Enabled, func(p schedconfig.Plugin) bool {
		return p.Name == defaultpreemption.Name
	})
	selected := map[string]bool{}
	dependsOnOrder := false
	if dp != nil && preempting {
		// Dry runs on every node where preemption may help. They use copies,
		// so PostFilter below starts from the same state.
		nodes, err := fit.Diagnosis.NodeToStatus.NodesForStatusCode(w.snap.NodeInfos(), fwk.Unschedulable)
		if err != nil {
			return err
		}
		var pdbs []*policyv1.PodDisruptionBudget
		if dp.Evaluator.PdbLister != nil {
			if pdbs, err = dp.Evaluator.PdbLister.List(labels.Everything()); err != nil {
				return err
			}
		}
		ok, _ := dp.PodEligibleToPreemptOthers(w.ctx, c.Pod, fit.Diagnosis.NodeToStatus.Get(c.Pod.Status.NominatedNodeName))
		if ok && len(nodes) > 0 {
			dry := state.Clone()
			if c.hasDRA() {
				// A clone shares the state of DynamicResources, which its
				// PostFilter reads, and PostFilter must not read changes of a
				// dry run.
				newState := framework.NewCycleState()
				if _, s, _ := w.fw.RunPreFilterPlugins(w.ctx, newState, c.Pod); !s.IsSuccess() {
					return s.AsError()
				}
				dry = newState
			}
			found, _, err := dp.Evaluator.DryRunPreemption(w.ctx, dry, c.Pod, nodes, pdbs, 0, int32(len(nodes)))
			if err != nil {
				// A filter fails with an error on a node that an earlier filter
				// rejected. Real dry runs try a random selection of nodes.
				r.Ambiguous = true
				return nil
			}
			r.Candidates = candidatesByNode(found)
			// The lister returns budgets in the order of a Go map, and a pod that violates a budget does not count
			// against the later ones.
			for shift := 0; shift < len(pdbs) && len(pdbs) > 1 && !c.hasDRA(); shift++ {
				others := append(slices.Clone(pdbs[shift:]), pdbs[:shift]...)
				for range 2 {
					again, _, err := dp.Evaluator.DryRunPreemption(w.ctx, state.Clone(), c.Pod, nodes, others, 0, int32(len(nodes)))
					if err != nil {
						return err
					}
					dependsOnOrder = dependsOnOrder || !reflect.DeepEqual(r.Candidates, candidatesByNode(again))
					slices.Reverse(others)
				}
			}
			if len(found) > 0 {
				for range 24 {
					selected[dp.Evaluator.SelectCandidate(w.ctx, found).Name()] = true
				}
			}
		}
	}
	varies := c.hasDRA() && w.deallocationVaries(state, c.Pod, fit.Diagnosis.NodeToStatus)
	res, status := w.fw.RunPostFilterPlugins(w.ctx, state, c.Pod, fit.Diagnosis.NodeToStatus)
	w.recordDeallocations(r)
	r.Ambiguous = varies || dependsOnOrder
	msg := status.Message()
	r.PreemptionMessage = &msg
	fit.Diagnosis.PostFilterMsg = msg
	fullMessage := fit.Error()
	r.Message = &fullMessage
	r.PostFilterCode = status.Code().String()
	if !status.IsSuccess() || res == nil || res.NominatingInfo == nil || res.NominatedNodeName == "" {
		return nil
	}
	if err := w.awaitPreemption(dp, c.Pod); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.PostFilter = &Preemption{NominatedNode: res.NominatedNodeName, Victims: sorted(w.deleted)}
	r.Cleared = sorted(w.cleared)
	r.Ambiguous = r.Ambiguous || len(selected) > 1
	if dp != nil && !selected[res.NominatedNodeName] {
		return fmt.Errorf("PostFilter selected %s; dry runs selected %v", res.NominatedNodeName, selected)
	}
	return nil
}

// awaitPreemption waits until the scheduler has deleted the victims in the background.
func (w *world) awaitPreemption(dp *defaultpreemption.DefaultPreemption, pod *v1.Pod) error {
	deadline := time.Now().Add(10 * time.Second)
	if dp != nil {
		for dp.Executor.IsPodRunningPreemption(pod.UID) {
			if time.Now().After(deadline) {
				return errors.New("preemption did not end within 10 s")
			}
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	}
	last, since := -1, time.Now()
	for time.Since(since) < 50*time.Millisecond {
		n := len(w.client.Actions())
		if n != last {
			last, since = n, time.Now()
		}
		if time.Now().After(deadline) {
			return errors.New("preemption did not end within 10 s")
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

func podKeys(pods []*v1.Pod) []string {
	out := []string{}
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

func sorted(in []string) []string {
	out := append([]string{}, in...)
	sort.Strings(out)
	return out
}
