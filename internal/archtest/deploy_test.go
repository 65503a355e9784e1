//go:build !race

package archtest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// rulesFile is a file of Prometheus rules, as far as it is checked here.
type rulesFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// TestAlertsHold: every alert is about metrics that exist, says what it is
// about, and is explained where its runbook link leads.
func TestAlertsHold(t *testing.T) {
	root := moduleRoot(t)
	file := filepath.Join(root, "deploy", "prometheus", "isobar.rules.yml")
	var rules rulesFile
	if err := yaml.UnmarshalWithOptions(read(t, file), &rules, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	known := documentedMetrics(t, root)
	headings := regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(read(t, filepath.Join(root, "docs", "how-to", "alerts.md"))), -1)
	explained := map[string]bool{}
	for _, h := range headings {
		explained[h[1]] = true
	}
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts++
			if !explained[r.Alert] {
				t.Errorf("%s is not explained, or stands twice", r.Alert)
			}
			delete(explained, r.Alert)
			const runbooks = "https://github.com/isobar-xds/isobar/blob/main/docs/how-to/alerts.md#"
			if r.Annotations["summary"] == "" || r.Annotations["runbook_url"] != runbooks+strings.ToLower(r.Alert) || r.Labels["severity"] == "" {
				t.Errorf("%s: annotations %v, labels %v", r.Alert, r.Annotations, r.Labels)
			}
			checkMetrics(t, r.Alert, r.Expr, known)
		}
	}
	if alerts < 10 || len(explained) > 0 {
		t.Errorf("%d alerts; explained without a rule: %v", alerts, explained)
	}
	promtool(t, file)
}

// TestDashboardHolds: every panel asks for metrics that exist, in PromQL that
// Prometheus reads.
func TestDashboardHolds(t *testing.T) {
	root := moduleRoot(t)
	var dashboard struct {
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(root, "deploy", "grafana", "isobar.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	known := documentedMetrics(t, root)
	// promtool reads rules; so each query becomes one.
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row" && len(p.Targets) == 0) {
			t.Errorf("panel %d %q: no title, no query, or a number that stands twice", p.ID, p.Title)
		}
		ids[p.ID] = true
		for i, target := range p.Targets {
			checkMetrics(t, p.Title, target.Expr, known)
			expr := strings.NewReplacer("$instance", ".*", "$service", ".*").Replace(target.Expr)
			fmt.Fprintf(&rules, "  - record: panel:%d:%d\n    expr: '%s'\n", p.ID, i, strings.ReplaceAll(expr, "'", "''"))
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, file)
}

// TestAlertsFire lets Prometheus evaluate rules over series that are made up.
func TestAlertsFire(t *testing.T) {
	promtest(t, "test", filepath.Join(moduleRoot(t), "deploy", "prometheus", "isobar.rules_test.yml"))
}

// promtool has Prometheus itself read a file of rules.
func promtool(t *testing.T, file string) {
	t.Helper()
	promtest(t, "check", file)
}

func promtest(t *testing.T, how, file string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", how, "rules", file).CombinedOutput()
	if err != nil {
		t.Errorf("promtool (`make tools` installs it): %v\n%s", err, out)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// documentedMetrics are those of the reference, which a test of its own holds
// against the code.
func documentedMetrics(t *testing.T, root string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, m := range regexp.MustCompile("`(isobar_[a-z0-9_]+)`").FindAllStringSubmatch(string(read(t, filepath.Join(root, "docs", "reference", "metrics.md"))), -1) {
		out[m[1]] = true
	}
	return out
}

// TestMetricsInMessages asserts that the metrics which messages to users name exist.
func TestMetricsInMessages(t *testing.T) {
	root := moduleRoot(t)
	known := documentedMetrics(t, root)
	inText := regexp.MustCompile(`[ (]isobar_[a-z0-9_]*[a-z0-9]\b`) // a name alone is of a definition
	found := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		for _, m := range inText.FindAllString(string(read(t, filepath.Join(root, name))), -1) {
			found++
			if !known[m[1:]] {
				t.Errorf("%s names%s, which does not exist", name, m)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d metrics are named, error %v", found, err)
	}
}

func checkMetrics(t *testing.T, where, expr string, known map[string]bool) {
	t.Helper()
	names := regexp.MustCompile(`\b(?:isobar|process|go)_[a-z0-9_]+\b`).FindAllString(expr, -1)
	if len(names) == 0 && expr != `up{job="isobar"} == 0` {
		t.Errorf("%s asks for no metric: %s", where, expr)
	}
	for _, name := range names {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if strings.HasPrefix(name, "isobar_") && !known[base] {
			t.Errorf("%s asks for %s, which does not exist", where, name)
		}
	}
}
