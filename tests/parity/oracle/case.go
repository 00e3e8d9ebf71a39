package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	configlatest "k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	configvalidation "k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
)

// Case is one line of the input.
type Case struct {
	Name                   string                          `json:"name"`
	Family                 string                          `json:"family,omitempty"`
	Nodes                  []*v1.Node                      `json:"nodes"`
	Pods                   []*v1.Pod                       `json:"pods"`
	Namespaces             []*v1.Namespace                 `json:"namespaces"`
	PVs                    []*v1.PersistentVolume          `json:"pvs,omitempty"`
	PVCs                   []*v1.PersistentVolumeClaim     `json:"pvcs,omitempty"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageclasses,omitempty"`
	CSINodes               []*storagev1.CSINode            `json:"csinodes,omitempty"`
	CSIDrivers             []*storagev1.CSIDriver          `json:"csidrivers,omitempty"`
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity `json:"csistoragecapacities,omitempty"`
	VolumeAttachments      []*storagev1.VolumeAttachment   `json:"volumeattachments,omitempty"`
	PDBs                   []*policyv1.PodDisruptionBudget `json:"pdbs,omitempty"`
	PriorityClasses        []*schedulingv1.PriorityClass   `json:"priorityclasses,omitempty"`
	Services               []*v1.Service                   `json:"services,omitempty"`
	ReplicationControllers []*v1.ReplicationController     `json:"replicationcontrollers,omitempty"`
	ReplicaSets            []*appsv1.ReplicaSet            `json:"replicasets,omitempty"`
	StatefulSets           []*appsv1.StatefulSet           `json:"statefulsets,omitempty"`
	ResourceClaims         []*resourcev1.ResourceClaim     `json:"resourceclaims,omitempty"`
	ResourceSlices         []*resourcev1.ResourceSlice     `json:"resourceslices,omitempty"`
	DeviceClasses          []*resourcev1.DeviceClass       `json:"deviceclasses,omitempty"`
	DeviceTaintRules       []*resourcev1.DeviceTaintRule   `json:"devicetaintrules,omitempty"`
	Pod                    *v1.Pod                         `json:"pod"`
	Profile                json.RawMessage                 `json:"profile,omitempty"`
	FeatureGates           map[string]bool                 `json:"featureGates,omitempty"` // must agree with -feature-gates
}

func decodeCase(line []byte, strict bool) (*Case, error) {
	c := &Case{}
	return c, decode(line, strict, c, c)
}

func decodeHintCase(line []byte) (*HintCase, error) {
	c := &HintCase{}
	return c, decode(line, true, c, &c.Case)
}

// decode decodes a line into target, which contains c.
func decode(line []byte, strict bool, target any, c *Case) error {
	d := json.NewDecoder(bytes.NewReader(line))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(target); err != nil {
		if c.Name != "" {
			err = fmt.Errorf("%s: %w", c.Name, err)
		}
		return err
	}
	if c.Pod == nil {
		return fmt.Errorf("%s: pod is missing", c.Name)
	}
	for name, on := range c.FeatureGates {
		if utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name)) != on {
			return fmt.Errorf("%s: needs -feature-gates %s=%t", c.Name, name, on)
		}
	}
	if string(c.Profile) == "null" {
		c.Profile = nil
	}
	for _, rc := range c.ResourceClaims {
		if rc.ResourceVersion == "" {
			rc.ResourceVersion = "1" // the scheduler's assume cache compares it
		}
	}
	return nil
}

// finished returns whether the scheduler's pod informer omits a pod. Its field
// selector on status.phase has no effect in a fake client.
func finished(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// objects returns all API objects of the case, including the pod to schedule,
// in the order of the case.
func (c *Case) objects() []runtime.Object {
	var out []runtime.Object
	out = add(out, c.Namespaces)
	out = add(out, c.PriorityClasses)
	out = add(out, c.StorageClasses)
	out = add(out, c.CSIDrivers)
	out = add(out, c.CSINodes)
	out = add(out, c.CSIStorageCapacities)
	out = add(out, c.VolumeAttachments)
	out = add(out, c.PVs)
	out = add(out, c.PVCs)
	out = add(out, c.Services)
	out = add(out, c.ReplicationControllers)
	out = add(out, c.ReplicaSets)
	out = add(out, c.StatefulSets)
	out = add(out, c.PDBs)
	out = add(out, c.DeviceClasses)
	out = add(out, c.DeviceTaintRules)
	out = add(out, c.ResourceSlices)
	out = add(out, c.ResourceClaims)
	out = add(out, c.Nodes)
	for _, p := range c.Pods {
		if !finished(p) {
			out = append(out, p)
		}
	}
	return append(out, c.Pod)
}

func add[T runtime.Object](out []runtime.Object, in []T) []runtime.Object {
	for _, o := range in {
		out = append(out, o)
	}
	return out
}

var configs sync.Map // the text of a profile -> *schedconfig.KubeSchedulerConfiguration

// config returns the scheduler's configuration for the case, with defaults. It
// is shared between cases and must not be modified.
func (c *Case) config() (*schedconfig.KubeSchedulerConfiguration, error) {
	key := string(c.Profile)
	if cfg, ok := configs.Load(key); ok {
		return cfg.(*schedconfig.KubeSchedulerConfiguration), nil
	}
	var cfg *schedconfig.KubeSchedulerConfiguration
	if key == "" {
		var err error
		if cfg, err = configlatest.Default(); err != nil {
			return nil, err
		}
	} else {
		obj, gvk, err := configscheme.Codecs.UniversalDecoder().Decode(c.Profile, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
		var ok bool
		if cfg, ok = obj.(*schedconfig.KubeSchedulerConfiguration); !ok {
			return nil, fmt.Errorf("profile: want a KubeSchedulerConfiguration, have %s", gvk)
		}
		if agg := configvalidation.ValidateKubeSchedulerConfiguration(cfg); agg != nil && len(agg.Errors()) > 0 {
			return nil, fmt.Errorf("profile: %w", errors.Join(agg.Errors()...))
		}
	}
	if cfg.PercentageOfNodesToScore == nil || *cfg.PercentageOfNodesToScore == 0 {
		all := int32(100)
		cfg.PercentageOfNodesToScore = &all
	}
	// Searches of devices that take longer are too slow for a set of cases.
	for _, prof := range cfg.Profiles {
		for _, pc := range prof.PluginConfig {
			if args, ok := pc.Args.(*schedconfig.DynamicResourcesArgs); ok {
				args.FilterTimeout = &metav1.Duration{Duration: 2 * time.Second}
			}
		}
	}
	configs.Store(key, cfg)
	return cfg, nil
}
