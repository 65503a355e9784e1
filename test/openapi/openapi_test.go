package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/openapi.json anew from the code")

const (
	root     = "../.."
	document = root + "/docs/reference/openapi.json"
)

// TestDocumentIsTheCode: every field of every answer stands in the document as the
// code has it.
func TestDocumentIsTheCode(t *testing.T) {
	want := generate(t)
	if *update {
		if err := os.WriteFile(document, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is not what the code has: run go test ./test/openapi -update", document)
	}
}

// TestEveryRoute: the document has the routes of the server, and no others.
func TestEveryRoute(t *testing.T) {
	source, err := os.ReadFile(root + "/internal/admin/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	var routed []string
	for _, m := range regexp.MustCompile(`(?:read|large)\(("/v1[^"]*"|health)`).FindAllStringSubmatch(string(source), -1) {
		routed = append(routed, "GET "+pathOf(m[1]))
	}
	for _, m := range regexp.MustCompile(`(?:write|led)\("(\w+)", ("/v1[^"]*"|health)`).FindAllStringSubmatch(string(source), -1) {
		routed = append(routed, m[1]+" "+pathOf(m[2]))
	}
	for _, m := range regexp.MustCompile(`mux\.Handle\("(\w+ /v1[^"]*)"`).FindAllStringSubmatch(string(source), -1) {
		routed = append(routed, m[1])
	}
	var described []string
	for i := range operations {
		described = append(described, operations[i].method+" "+operations[i].path)
	}
	slices.Sort(routed)
	slices.Sort(described)
	if !slices.Equal(routed, described) {
		t.Errorf("the server has\n%s\nand the document\n%s", strings.Join(routed, "\n"), strings.Join(described, "\n"))
	}
}

func pathOf(literal string) string {
	if literal == "health" {
		return health
	}
	return strings.Trim(literal, `"`)
}

// generate writes the document.
func generate(t *testing.T) []byte {
	t.Helper()
	comments, err := commentsOf(root)
	if err != nil {
		t.Fatal(err)
	}
	s := &schemas{made: object{}, comments: comments}
	problem := answerOf(object{"$ref": "#/components/schemas/admin.Problem"}, "a refusal, with what to do")
	s.problem()
	paths := object{}
	for i := range operations {
		o := &operations[i]
		if paths[o.path] == nil {
			paths[o.path] = object{}
		}
		paths[o.path].(object)[strings.ToLower(o.method)] = s.operation(o, problem)
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Isobar admin API", "version": "1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Rates are requests/s, latencies milliseconds, shares and utilizations fractions. docs/reference/admin-api.md says more.",
		},
		"paths":    paths,
		"security": []any{object{}, object{"token": []string{}}},
		"components": object{
			"schemas":         s.made,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "if admin.token_file is set"}},
		},
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(doc); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func answerOf(schema object, description string) object {
	return object{"description": description, "content": object{"application/json": object{"schema": schema}}}
}

func (s *schemas) operation(o *operation, problem object) object {
	out := object{"summary": o.summary, "responses": object{"200": s.answer(o.answers), "default": problem}}
	if o.kept {
		out["responses"].(object)["202"] = s.answer(o.answers)
	}
	parameters := []any{}
	for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(o.path, -1) {
		parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	var names []string
	for name := range o.query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		parameters = append(parameters, object{"name": name, "in": "query", "description": o.query[name], "schema": object{"type": "string"}})
	}
	if o.ifMatch {
		parameters = append(parameters, object{"name": "If-Match", "in": "header", "description": "the request is applied only if the state that the caller saw is unchanged", "schema": object{"type": "string"}})
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	switch body := o.body.(type) {
	case nil:
	case string:
		out["requestBody"] = object{"description": body, "content": object{"application/json": object{}, "application/yaml": object{}}}
	default:
		t, _ := typeOf(body)
		out["requestBody"] = object{"content": object{"application/json": object{"schema": s.of(t)}}}
	}
	return out
}

func (s *schemas) answer(answers []any) object {
	var of []any
	for _, a := range answers {
		t, ok := typeOf(a)
		if !ok {
			media, _ := a.(string)
			return object{"description": "a stream", "content": object{media: object{}}}
		}
		of = append(of, s.of(t))
	}
	if len(of) == 1 {
		schema, _ := of[0].(object)
		return answerOf(schema, "done")
	}
	return answerOf(object{"oneOf": of}, "done")
}
