package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func (s *schemas) problem() { s.of(reflect.TypeFor[admin.Problem]()) }

// TestServerAnswersAsDescribed asks a real server with a real fleet, and holds its
// answers against the document: no field is missing, and none is unknown.
func TestServerAnswersAsDescribed(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var doc object
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	run, err := fleet.Start(t.Context(), fleet.DefaultScenario(), isobar.ModeFull, fleet.ServeIsobar)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
	a := &asker{t: t, doc: doc, base: "http://" + run.Admin(), asked: map[string]bool{}}
	a.awaitChange()
	const drain = `{"service": "checkout", "locality": "us-east/b", "who": "test", "reason": "test"}`
	endpoint := a.endpoint()
	extra := "/v1/services/{name}|/v1/services/extra"
	const service = `{"localities": [{"locality": "us-east/a", "max_rate": 10, "endpoints": ["127.0.0.1:9"]}]}`
	for _, x := range [][4]string{
		{"GET", "/v1/services", "", ""}, {"GET", "/v1/services/{name}|/v1/services/checkout", "", ""}, {"GET", "/v1/health", "", ""},
		{"PUT", extra, "", service}, {"DELETE", extra, "", ""}, {"PUT", "/v1/services", "", `[]`},
		{"GET", health + "|" + endpoint, "", ""}, {"PUT", health + "|" + endpoint, "?force=true", "draining"}, {"GET", "/v1/health", "", ""},
		{"GET", health + "|" + endpoint, "", ""}, {"DELETE", health + "|" + endpoint, "", ""},
		{"GET", "/v1/plan", "", ""}, {"GET", "/v1/plan", "?service=checkout", ""}, {"POST", "/v1/plan", "", "services: []\n"},
		{"POST", "/v1/whatif", "", `{"lose": ["us-east/b"]}`}, {"GET", "/v1/explain", "?service=checkout&from=us-east/a", ""},
		{"GET", "/v1/capacity", "?service=checkout", ""}, {"GET", "/v1/clients", "", ""}, {"GET", "/v1/verdicts", "", ""}, {"GET", "/v1/access", "", ""},
		{"GET", "/v1/status", "", ""}, {"GET", "/v1/overview", "", ""}, {"GET", "/v1/flows", "", ""}, {"GET", "/v1/flows", "?from=us-east", ""},
		{"GET", "/v1/samples", "?service=checkout", ""}, {"GET", "/v1/samples", "?span=day", ""}, {"POST", "/v1/marks", "", `{"text": "a test"}`}, {"GET", "/v1/marks", "", ""}, {"GET", "/v1/history", "", ""}, {"GET", "/v1/history", "?brief=true", ""},
		{"GET", "/v1/history/timeline", "?span=hour", ""}, {"GET", "/v1/history/moment", "?service=checkout", ""},
		{"GET", "/v1/history/net", "?from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z", ""},
		{"GET", "/v1/history/span", "?from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z", ""}, {"GET", "/v1/checkers", "", ""}, {"GET", "/v1/replicas", "", ""},
		{"GET", "/v1/clients", "?service=checkout", ""}, {"POST", "/v1/whatif", "", `{"capacity": [{"service": "checkout", "factor": 0.5}]}`},
		{"POST", "/v1/drain", "?force=true", drain}, {"POST", "/v1/undrain", "", drain},
		{"POST", "/v1/pause", "", `{"service": "checkout"}`}, {"GET", "/v1/status", "", ""}, {"POST", "/v1/resume", "", `{"service": "checkout"}`},
		{"PUT", "/v1/services/{name}/health/release|/v1/services/checkout/health/release", "", ""},
	} {
		path, actual, given := strings.Cut(x[1], "|")
		if !given {
			actual = path
		}
		a.ask(x[0], path, actual+x[2], x[3])
	}
	// These need what this server does not have: a file, another control plane, names
	// in DNS, a group of replicas, a version that can be returned to; or their answer is no document.
	left := []string{"POST /v1/replicas/step-down", "POST /v1/replicas/accept-config", "POST /v1/reload", "GET /v1/discovery/xds", "GET /v1/discovery/dns", "GET /v1/discovery/kubernetes", "POST /v1/rollback", "GET /v1/stream", "POST /v1/record"}
	for i := range operations {
		name := operations[i].method + " " + operations[i].path
		if !a.asked[name] && !slices.Contains(left, name) {
			t.Errorf("%s is not asked", name)
		}
	}
	a.ask("GET", "/v1/status", "/v1/nothing", "") // a refusal is a Problem
}

// asker asks a server, and checks its answers.
type asker struct {
	t     *testing.T
	doc   object
	base  string
	asked map[string]bool
}

func (a *asker) send(method, path, body string) (code int, data []byte) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err = io.ReadAll(resp.Body); err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, data
}

// awaitChange returns once shares have changed, clients have reported and been heard
// of.
func (a *asker) awaitChange() {
	a.t.Helper()
	testhelp.Eventually(a.t, "shares change", func() bool {
		var list admin.ChangeList
		_, data := a.send("GET", "/v1/history", "")
		return json.Unmarshal(data, &list) == nil && len(list.Changes) > 1
	})
}

func (a *asker) endpoint() string {
	a.t.Helper()
	var obj admin.ServiceObject
	_, data := a.send("GET", "/v1/services/checkout", "")
	if err := json.Unmarshal(data, &obj); err != nil {
		a.t.Fatal(err)
	}
	return "/v1/services/checkout/endpoints/" + obj.Service.Localities[0].Endpoints[0].Address + "/health"
}

func (a *asker) ask(method, path, actual, body string) {
	a.t.Helper()
	a.asked[method+" "+path] = true
	code, data := a.send(method, actual, body)
	var answer any
	if err := json.Unmarshal(data, &answer); err != nil {
		a.t.Errorf("%s %s: %d %v", method, actual, code, err)
		return
	}
	schema := dig(a.doc, "paths", path, strings.ToLower(method), "responses", fmt.Sprint(code))
	if schema == nil {
		if actual != "/v1/nothing" {
			a.t.Errorf("%s %s: %d %.300s", method, actual, code, data)
		}
		schema = dig(a.doc, "paths", path, strings.ToLower(method), "responses", "default")
	}
	schema = dig(schema, "content", "application/json", "schema")
	if faults := a.check(schema, answer, "$"); len(faults) > 0 {
		a.t.Errorf("%s %s: %s", method, actual, strings.Join(faults[:min(5, len(faults))], "; "))
	}
}

func dig(x any, keys ...string) any {
	for _, k := range keys {
		m, _ := x.(object)
		x = m[k]
	}
	return x
}

// check lists where a value is not as a schema has it. It knows the part of JSON
// Schema that the document uses.
func (a *asker) check(schema, value any, at string) (faults []string) {
	s, ok := schema.(object)
	if !ok {
		return []string{at + " has no schema"}
	}
	if ref, ok := s["$ref"].(string); ok {
		return a.check(dig(a.doc, "components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/")), value, at)
	}
	if all, ok := s["allOf"].([]any); ok {
		return a.check(all[0], value, at)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if several, ok := s[key].([]any); ok {
			for _, one := range several {
				if faults = a.check(one, value, at); len(faults) == 0 {
					return nil
				}
			}
			return faults
		}
	}
	if s["type"] == nil {
		return nil
	}
	if !ofType(s["type"], value) {
		return []string{fmt.Sprintf("%s is %T, want %v", at, value, s["type"])}
	}
	switch v := value.(type) {
	case []any:
		for i, x := range v {
			faults = append(faults, a.check(s["items"], x, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case object:
		faults = a.checkObject(s, v, at)
	}
	return faults
}

func (a *asker) checkObject(s, v object, at string) (faults []string) {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			faults = append(faults, fmt.Sprintf("%s lacks %s", at, name))
		}
	}
	for name, x := range v {
		field := dig(s, "properties", name)
		if field == nil {
			field = s["additionalProperties"]
		}
		if field == false {
			faults = append(faults, fmt.Sprintf("%s has %s, which is not described", at, name))
			continue
		}
		faults = append(faults, a.check(field, x, at+"."+name)...)
	}
	return faults
}

func ofType(want, value any) bool {
	if several, ok := want.([]any); ok {
		return slices.ContainsFunc(several, func(one any) bool { return ofType(one, value) })
	}
	switch v := value.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	default:
		return want == "object"
	}
}
