// Command selectors compiles and evaluates CEL device selectors, and
// expressions of derived attributes, like kube-scheduler v1.37.1 (JSON lines on
// stdin and stdout). With -functions it prints the function declarations of the
// environment instead.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

var flagFunctions = flag.Bool("functions", false, "print the declared functions of the environment, one JSON object per line")

// attribute is the value of an attribute; exactly one field is set.
type attribute struct {
	Bool     *bool     `json:"bool"`
	Int      *int64    `json:"int"`
	String   *string   `json:"string"`
	Version  *string   `json:"version"`
	Bools    *[]bool   `json:"bools"`
	Ints     *[]int64  `json:"ints"`
	Strings  *[]string `json:"strings"`
	Versions *[]string `json:"versions"`
}

// selectorCase is one line of the input: an expression and a device.
type selectorCase struct {
	Expression               string               `json:"expression"`
	Driver                   string               `json:"driver"`
	AllowMultipleAllocations bool                 `json:"allowMultipleAllocations"`
	Attributes               map[string]attribute `json:"attributes"`
	Capacity                 map[string]string    `json:"capacity"`
	Derived                  bool                 `json:"derived"` // whether it is the expression of a derived attribute
}

// evaluation is one line of the output.
type evaluation struct {
	Match        *bool   `json:"match,omitempty"`
	Value        any     `json:"value,omitempty"`
	CompileError string  `json:"compileError,omitempty"`
	RuntimeError string  `json:"runtimeError,omitempty"`
	Cost         *uint64 `json:"cost,omitempty"`
}

func (a attribute) value() resourceapi.DeviceAttribute {
	result := resourceapi.DeviceAttribute{BoolValue: a.Bool, IntValue: a.Int, StringValue: a.String, VersionValue: a.Version}
	if a.Bools != nil {
		result.BoolValues = *a.Bools
	}
	if a.Ints != nil {
		result.IntValues = *a.Ints
	}
	if a.Strings != nil {
		result.StringValues = *a.Strings
	}
	if a.Versions != nil {
		result.VersionValues = *a.Versions
	}
	return result
}

func (c selectorCase) device() dracel.Device {
	device := dracel.Device{
		Driver:                   c.Driver,
		AllowMultipleAllocations: &c.AllowMultipleAllocations,
		Attributes:               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{},
	}
	for name, value := range c.Attributes {
		device.Attributes[resourceapi.QualifiedName(name)] = value.value()
	}
	for name, value := range c.Capacity {
		device.Capacity[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: resource.MustParse(value)}
	}
	return device
}

// evaluate evaluates a case. A panic is returned as a runtime error.
func evaluate(c selectorCase) (result evaluation) {
	defer func() {
		if r := recover(); r != nil {
			result = evaluation{RuntimeError: fmt.Sprintf("panic: %v", r)}
		}
	}()
	// These are the features of the default configuration. Stored expressions ignore them.
	features := dracel.Features{EnableConsumableCapacity: true}
	options := dracel.Options{DisableCostEstimation: true, DerivedAttribute: c.Derived}
	compiled := dracel.GetCompiler(features).CompileCELExpression(c.Expression, options)
	if compiled.Error != nil {
		return evaluation{CompileError: compiled.Error.Error()}
	}
	if c.Derived {
		value, details, err := compiled.EvaluateDerivedAttribute(context.Background(), c.device())
		if details != nil {
			result.Cost = details.ActualCost()
		}
		if err != nil {
			result.RuntimeError = err.Error()
			return result
		}
		result.Value = value
		return result
	}
	match, details, err := compiled.DeviceMatches(context.Background(), c.device())
	if details != nil {
		result.Cost = details.ActualCost()
	}
	if err != nil {
		result.RuntimeError = dracel.EnhanceRuntimeError(err).Error()
		return result
	}
	result.Match = &match
	return result
}

type overload struct {
	Function string   `json:"function"`
	ID       string   `json:"id"`
	Member   bool     `json:"member"`
	Args     []string `json:"args"`
	Result   string   `json:"result"`
}

func printFunctions(out *json.Encoder) {
	compiled := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).CompileCELExpression("true", dracel.Options{DisableCostEstimation: true})
	functions := compiled.Environment.Functions()
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, declared := range functions[name].OverloadDecls() {
			line := overload{Function: name, ID: declared.ID(), Member: declared.IsMemberFunction(), Result: typeText(declared.ResultType())}
			for _, arg := range declared.ArgTypes() {
				line.Args = append(line.Args, typeText(arg))
			}
			if err := out.Encode(line); err != nil {
				panic(err)
			}
		}
	}
}

func typeText(t *types.Type) string {
	return cel.FormatCELType(t)
}

func main() {
	flag.Parse()
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if *flagFunctions {
		printFunctions(out)
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c selectorCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := out.Encode(evaluate(c)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
