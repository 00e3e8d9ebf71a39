// Command oracle runs the scheduling framework of kube-scheduler v1.37.1 on
// clusters (JSON lines on stdin) and prints the decisions of its plugins (JSON
// lines on stdout). See README.md.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

var (
	flagAdmit    = flag.Bool("admit", false, "process each object as on creation in the API server: strict decoding, defaults, the pod strategy (for example matchLabelKeys merged into selectors), validation")
	flagGolden   = flag.Bool("golden", false, `print {"case": ..., "expect": ...} instead of the result alone`)
	flagCase     = flag.Bool("cases", false, "print the case after -admit and do not schedule")
	flagSkip     = flag.Bool("skip-ambiguous", false, "omit cases in which kube-scheduler may choose between several preemption candidates at random, or fails with an internal error")
	flagErrors   = flag.Bool("errors", false, "with -skip-ambiguous: keep cases that end in an internal error")
	flagLimit    = flag.Int("limit", 0, "stop after this many results (0: no limit)")
	flagE2E      = flag.Bool("e2e", false, "also run each case through a running scheduler (real informers, queue, scheduling cycle, events) and report differences on stderr")
	flagWorkers  = flag.Int("workers", runtime.GOMAXPROCS(0), "number of concurrent cases")
	flagHints    = flag.Bool("hints", false, "each case is a waiting pod and a change of an object: print the events that reach the scheduling queue, and each plugin's queueing hint")
	flagQueue    = flag.Bool("queue", false, "each line is a sequence of calls of a scheduling queue: print the content of the queue after each step")
	flagGates    = flag.String("feature-gates", "", "feature gates that differ from their defaults, as NAME=BOOL,...; the cases must have the same in featureGates")
	flagFeatures = flag.Bool("features", false, "print the feature gates in force and exit")
	flagVersion  = flag.Bool("version", false, "print the version of Kubernetes and exit")
)

type job struct {
	n    int
	line []byte
}

// output is the result of a line of the input. One of its fields is set.
type output struct {
	out  []byte
	err  error
	skip bool
}

func main() {
	flag.Parse()
	quiet := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(quiet)
	quiet.Set("logtostderr", "false")
	quiet.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
	if *flagVersion {
		fmt.Println(version())
		return
	}
	if err := utilfeature.DefaultMutableFeatureGate.Set(*flagGates); err != nil {
		fmt.Fprintln(os.Stderr, "oracle: -feature-gates:", err)
		os.Exit(2)
	}
	if *flagFeatures {
		printFeatures()
		return
	}
	metrics.Register()
	os.Exit(run())
}

// version returns the version of the Kubernetes module in the program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return m.Version
			}
		}
	}
	return "unknown"
}

func printFeatures() {
	all := utilfeature.DefaultMutableFeatureGate.GetAll()
	names := make([]string, 0, len(all))
	stage := map[string]string{}
	on := map[string]bool{}
	for f, spec := range all {
		names = append(names, string(f))
		stage[string(f)] = string(spec.PreRelease)
		on[string(f)] = utilfeature.DefaultFeatureGate.Enabled(f)
	}
	sort.Strings(names)
	for _, n := range names {
		s := stage[n]
		if s == "" {
			s = "GA"
		}
		fmt.Printf("%s=%t\t%s\n", n, on[n], s)
	}
}

// run processes several cases concurrently and prints results in the order of the input.
func run() int {
	jobs := make(chan job)
	type slot chan output
	slots := make(chan slot, 4**flagWorkers)
	type work struct {
		job
		to slot
	}
	queue := make(chan work)
	var wg sync.WaitGroup
	for range *flagWorkers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for w := range queue {
				w.to <- handle(w.line)
			}
		}()
	}
	stop := make(chan struct{})
	go func() {
		defer close(jobs)
		in := bufio.NewReaderSize(os.Stdin, 1<<20)
		for n := 1; ; n++ {
			line, err := in.ReadBytes('\n')
			if len(bytes.TrimSpace(line)) > 0 {
				select {
				case jobs <- job{n, line}:
				case <-stop:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(slots)
		for j := range jobs {
			s := make(slot, 1)
			slots <- s
			queue <- work{j, s}
		}
		close(queue)
	}()
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	failures, written, skipped := 0, 0, 0
	stopped := false
	for s := range slots {
		a := <-s
		if stopped {
			continue
		}
		switch {
		case a.err != nil:
			failures++
			fmt.Fprintln(os.Stderr, "oracle:", a.err)
		case a.skip:
			skipped++
		default:
			out.Write(a.out)
			out.WriteByte('\n')
			written++
			if *flagLimit > 0 && written >= *flagLimit {
				stopped = true
				close(stop)
			}
		}
	}
	wg.Wait()
	if skipped > 0 {
		fmt.Fprintf(os.Stderr, "oracle: %d ambiguous cases omitted\n", skipped)
	}
	if failures > 0 {
		fmt.Fprintf(os.Stderr, "oracle: %d of %d cases failed\n", failures, failures+written+skipped)
		return 1
	}
	return 0
}

func handle(line []byte) (a output) {
	name := "?"
	defer func() {
		if r := recover(); r != nil {
			buf := make([]byte, 1<<14)
			a = output{err: fmt.Errorf("%s: panic: %v\n%s", name, r, buf[:runtime.Stack(buf, false)])}
		}
	}()
	if *flagHints {
		return handleHints(line, &name)
	}
	if *flagQueue {
		return handleQueueSequence(line, &name)
	}
	c, err := decodeCase(line, *flagAdmit)
	if err != nil {
		return output{err: fmt.Errorf("decoding: %w", err)}
	}
	name = c.Name
	if *flagAdmit {
		if err := admit(c); err != nil {
			return output{err: fmt.Errorf("%s: %w", c.Name, err)}
		}
	}
	var caseJSON []byte
	if *flagGolden || *flagCase {
		caseJSON = bytes.TrimSpace(line)
		if *flagAdmit {
			if caseJSON, err = json.Marshal(c); err != nil {
				return output{err: fmt.Errorf("%s: %w", c.Name, err)}
			}
		}
		if *flagCase {
			return output{out: caseJSON}
		}
	}
	res, err := decide(c)
	if err != nil {
		return output{err: fmt.Errorf("%s: %w", c.Name, err)}
	}
	if *flagE2E {
		if err := endToEnd(c, res); err != nil {
			return output{err: fmt.Errorf("%s: end to end: %w", c.Name, err)}
		}
	}
	if *flagSkip && (res.Ambiguous || res.Error != "" && !*flagErrors) {
		return output{skip: true}
	}
	var v any = res
	if *flagGolden {
		v = golden{caseJSON, res}
	}
	out, err := marshal(v)
	return output{out: out, err: err}
}

type golden struct {
	Case   json.RawMessage `json:"case"`
	Expect any             `json:"expect"`
}

func handleHints(line []byte, name *string) output {
	c, err := decodeHintCase(line)
	if err != nil {
		return output{err: fmt.Errorf("decoding: %w", err)}
	}
	*name = c.Name
	res, err := hints(c)
	if err != nil {
		return output{err: fmt.Errorf("%s: %w", c.Name, err)}
	}
	var v any = res
	if *flagGolden {
		v = golden{json.RawMessage(bytes.TrimSpace(line)), res}
	}
	out, err := marshal(v)
	return output{out: out, err: err}
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
