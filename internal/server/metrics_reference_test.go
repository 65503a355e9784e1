package server_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

var updateMetrics = flag.Bool("update-metrics", false, "write names and labels of docs/reference/metrics.md anew from the code")

// described is a metric as the code has it.
type described struct {
	labels string // in the order of the code
	help   string
}

// TestMetricReference holds the reference against what a server with all that can
// be configured, and a checker, register: each metric has its row, with its
// labels, and each row its metric. -update-metrics writes it so; the meaning of
// a metric that is new begins as its help text.
func TestMetricReference(t *testing.T) {
	const path = "../../docs/reference/metrics.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const source = `discovery: {xds: {server: "127.0.0.1:1", services: [{name: listed}]}}`
	all := metricsOfAServer(t, source)
	maps.Copy(all, metricsOfAServer(t, `replicas: {group: g, name: a, listen: "127.0.0.1:0", peers: ["a:1"], election: {file: "`+t.TempDir()+`"}}`))
	maps.Copy(all, metricsOfAChecker(t))
	if len(all) < 80 {
		t.Errorf("only %d metrics are registered", len(all))
	}
	want := reference(string(text), all)
	if strings.Contains(string(text), unsorted) && !*updateMetrics {
		t.Errorf("%s has a section %q: move its rows to the sections of their subjects", path, unsorted)
	}
	if want == string(text) {
		return
	}
	if *updateMetrics {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	have := strings.Split(string(text), "\n")
	for line := range strings.SplitSeq(want, "\n") {
		if !slices.Contains(have, line) {
			t.Errorf("%s should have: %s", path, line)
		}
	}
	for _, line := range have {
		if !slices.Contains(strings.Split(want, "\n"), line) {
			t.Errorf("%s should not have: %s", path, line)
		}
	}
	t.Error("go test ./internal/server -run TestMetricReference -update-metrics writes it, new metrics at the end: move their rows to their section")
}

// unsorted is the heading above the rows that the test has written.
const unsorted = "## More"

// reference returns the reference as the code wants it: rows of what is not there
// are left out, labels are those of the code, and what is missing gets a section
// at the end.
func reference(text string, all map[string]described) string {
	row := regexp.MustCompile("^\\| (`isobar_[^|]*`) \\| ([^|]*)\\| (.*) \\|$")
	name := regexp.MustCompile("`(isobar_[a-z0-9_]+)`")
	told := map[string]bool{}
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		m := row.FindStringSubmatch(line)
		if m == nil {
			out = append(out, line)
			continue
		}
		var names []string
		labels := ""
		for _, n := range name.FindAllStringSubmatch(m[1], -1) {
			if d, ok := all[n[1]]; ok && !told[n[1]] {
				told[n[1]], labels = true, d.labels
				names = append(names, "`"+n[1]+"`")
			}
		}
		if len(names) > 0 {
			out = append(out, tableRow(strings.Join(names, ", "), labels, m[3]))
		}
	}
	var missing []string
	for n, d := range all {
		if !told[n] {
			missing = append(missing, tableRow("`"+n+"`", d.labels, d.help))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		out = append(out, unsorted, "", "| Metric | Labels | Meaning |", "|---|---|---|")
		out = append(append(out, missing...), "")
	}
	return strings.Join(out, "\n")
}

func tableRow(names, labels, meaning string) string {
	if labels != "" {
		labels += " "
	}
	return fmt.Sprintf("| %s | %s| %s |", names, labels, meaning)
}

// describe lists the metrics of Isobar's own that a registry has.
func describe(t *testing.T, registry prometheus.Collector) map[string]described {
	t.Helper()
	pattern := regexp.MustCompile(`^Desc\{fqName: "(isobar_[a-z0-9_]+)", help: (".*"), unit: "[^"]*", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		registry.Describe(descs)
	}()
	out := map[string]described{}
	for d := range descs {
		m := pattern.FindStringSubmatch(d.String())
		if m == nil {
			if strings.Contains(d.String(), "isobar_") {
				t.Errorf("a description of another form: %s", d)
			}
			continue
		}
		help, err := strconv.Unquote(m[2])
		if err != nil {
			t.Fatal(err)
		}
		out[m[1]] = described{strings.ReplaceAll(m[3], ",", ", "), help}
	}
	return out
}

// metricsOfAServer lists those of a server that has all that brings metrics
// along; more is the rest of its configuration.
func metricsOfAServer(t *testing.T, more string) map[string]described {
	t.Helper()
	dir := t.TempDir()
	f := identitytest.NewCA(t).Write(dir, identitytest.Leaf{})
	token, path := filepath.Join(dir, "token"), filepath.Join(dir, "isobar.yaml")
	identitytest.Replace(t, token, []byte("0123456789abcdef"))
	data := fmt.Appendf(nil, `
xds: {listen: "127.0.0.1:0", listen_rest: "127.0.0.1:0", listen_2017: "127.0.0.1:0", tls: {cert: %[1]q, key: %[2]q}}
admin: {listen: "127.0.0.1:0", tls: {cert: %[1]q, key: %[2]q}, token_file: %[3]q}
state_dir: %[4]q
trace: {directory: %[5]q}
stop_spread: 0s
%[6]s
`, f.Cert, f.Key, token, filepath.Join(dir, "state"), filepath.Join(dir, "trace"), more)
	s := startFile(t, path, data)
	registry, ok := s.Metrics().(prometheus.Collector)
	if !ok {
		t.Fatalf("%T does not tell what it has", s.Metrics())
	}
	// That of the file comes when the server begins to follow it.
	testhelp.Eventually(t, "all metrics are there", func() bool {
		_, ok := describe(t, registry)["isobar_discovery_file_good"]
		return ok
	})
	return describe(t, registry)
}

// metricsOfAChecker lists those of a checker.
func metricsOfAChecker(t *testing.T) map[string]described {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	registry := prometheus.NewRegistry()
	if _, err := checker.New(checker.Options{Conn: conn, ID: "c", Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	return describe(t, registry)
}
