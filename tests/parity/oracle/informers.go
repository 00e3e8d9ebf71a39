package main

import (
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"
)

// staticFactory provides the informers of the scheduler's listers, event
// handlers and assume caches with the objects of one case. Nothing runs in the
// background: deliver fills every store and calls every handler in the calling
// goroutine, in the order of the case. So nothing has to be awaited, and the
// pods of a node are always counted in the same order.
type staticFactory struct {
	informers.SharedInformerFactory

	mu      sync.Mutex
	byType  map[reflect.Type]*staticInformer
	order   []*staticInformer
	objects map[reflect.Type][]runtime.Object
	started bool
}

func newStaticFactory(base informers.SharedInformerFactory, objs []runtime.Object) *staticFactory {
	f := &staticFactory{
		SharedInformerFactory: base,
		byType:                map[reflect.Type]*staticInformer{},
		objects:               map[reflect.Type][]runtime.Object{},
	}
	for _, o := range objs {
		t := reflect.TypeOf(o)
		f.objects[t] = append(f.objects[t], o)
	}
	return f
}

// InformerFor is called by the typed informers of all API groups.
func (f *staticFactory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := reflect.TypeOf(obj)
	if inf, ok := f.byType[t]; ok {
		return inf
	}
	inf := &staticInformer{
		SharedIndexInformer: f.SharedInformerFactory.InformerFor(obj, newFunc),
		objs:                f.objects[t],
	}
	f.byType[t] = inf
	f.order = append(f.order, inf)
	if f.started {
		inf.deliver()
	}
	return inf
}

// deliver delivers the objects, those of the types in first before all others.
func (f *staticFactory) deliver(first ...runtime.Object) {
	f.mu.Lock()
	f.started = true
	var pending []*staticInformer
	for _, o := range first {
		if inf, ok := f.byType[reflect.TypeOf(o)]; ok {
			pending = append(pending, inf)
		}
	}
	pending = append(pending, f.order...)
	f.mu.Unlock()
	for _, inf := range pending {
		inf.deliver()
	}
}

// addCreated delivers an object that the scheduler created.
func (f *staticFactory) addCreated(obj runtime.Object) {
	if err := f.change(reflect.TypeOf(obj), nil, obj); err != nil {
		panic(err)
	}
}

// change applies a change of one object like a watch: first to the store, then
// to the handlers. It does nothing if the type has no informer.
func (f *staticFactory) change(t reflect.Type, before, after runtime.Object) error {
	f.mu.Lock()
	inf, ok := f.byType[t]
	f.mu.Unlock()
	if !ok {
		return nil
	}
	inf.mu.Lock()
	handlers := append([]cache.ResourceEventHandler(nil), inf.handlers...)
	inf.mu.Unlock()
	var err error
	if after == nil {
		err = inf.GetIndexer().Delete(before)
	} else {
		err = inf.GetIndexer().Update(after)
	}
	for _, h := range handlers {
		switch {
		case before == nil:
			h.OnAdd(after, false)
		case after == nil:
			h.OnDelete(before)
		default:
			h.OnUpdate(before, after)
		}
	}
	return err
}

func (f *staticFactory) Core() core.Interface { return core.New(f, metav1.NamespaceAll, nil) }
func (f *staticFactory) Apps() apps.Interface { return apps.New(f, metav1.NamespaceAll, nil) }
func (f *staticFactory) Policy() policy.Interface {
	return policy.New(f, metav1.NamespaceAll, nil)
}
func (f *staticFactory) Resource() resource.Interface {
	return resource.New(f, metav1.NamespaceAll, nil)
}
func (f *staticFactory) Scheduling() scheduling.Interface {
	return scheduling.New(f, metav1.NamespaceAll, nil)
}
func (f *staticFactory) Storage() storage.Interface {
	return storage.New(f, metav1.NamespaceAll, nil)
}

// staticInformer uses the store and the indexers of the embedded informer, which
// never runs, and replaces the methods for event handlers.
type staticInformer struct {
	cache.SharedIndexInformer

	mu        sync.Mutex
	objs      []runtime.Object
	handlers  []cache.ResourceEventHandler
	delivered bool
}

func (i *staticInformer) deliver() {
	i.mu.Lock()
	if i.delivered {
		i.mu.Unlock()
		return
	}
	i.delivered = true
	handlers := append([]cache.ResourceEventHandler(nil), i.handlers...)
	i.mu.Unlock()
	for _, o := range i.objs {
		if err := i.GetIndexer().Add(o); err != nil {
			panic(err)
		}
	}
	for _, h := range handlers {
		for _, o := range i.objs {
			h.OnAdd(o, true)
		}
	}
}

func (i *staticInformer) add(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	i.handlers = append(i.handlers, h)
	isDelivered := i.delivered
	i.mu.Unlock()
	if isDelivered {
		for _, o := range i.objs {
			h.OnAdd(o, true)
		}
	}
	return alwaysSynced{}, nil
}

func (i *staticInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(h)
}

func (i *staticInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(h)
}

func (i *staticInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(h)
}

func (i *staticInformer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }
func (i *staticInformer) HasSynced() bool                                                 { return true }
func (i *staticInformer) HasSyncedChecker() cache.DoneChecker                             { return alwaysSynced{} }
func (i *staticInformer) IsStopped() bool                                                 { return false }

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// alwaysSynced is a handler registration and a checker that are always synced.
type alwaysSynced struct{}

func (alwaysSynced) HasSynced() bool                     { return true }
func (alwaysSynced) HasSyncedChecker() cache.DoneChecker { return alwaysSynced{} }
func (alwaysSynced) Name() string                        { return "static" }
func (alwaysSynced) Done() <-chan struct{}               { return closed }
