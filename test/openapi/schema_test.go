package openapi_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

type object = map[string]any

// schemas makes the schemas of Go types as encoding/json writes them.
type schemas struct {
	made     object            // by name
	comments map[string]string // by package.Type and package.Type.Field
}

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
)

func (s *schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[admin.Numbers]():
		return object{"type": "array", "items": object{"type": []string{"number", "null"}}}
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Implements(jsonMarshaler) || reflect.PointerTo(t).Implements(jsonMarshaler):
		return object{"description": "as in the configuration file"}
	case t.Implements(textMarshaler) || reflect.PointerTo(t).Implements(textMarshaler):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Slice:
		return object{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case reflect.Array:
		return object{"type": "array", "items": s.of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case reflect.Interface:
		return object{}
	case reflect.Struct:
		return s.structure(t)
	default:
		panic(fmt.Sprintf("no schema for %s", t))
	}
}

func nameOf(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }

func (s *schemas) structure(t reflect.Type) object {
	name := nameOf(t)
	ref := object{"$ref": "#/components/schemas/" + name}
	if t.Name() != "" {
		if s.made[name] != nil {
			return ref
		}
		s.made[name] = object{} // for types that hold themselves
	}
	properties, required := object{}, []string{}
	s.fields(t, properties, &required)
	out := object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	if text := s.comments[name]; text != "" {
		out["description"] = text
	}
	if t.Name() == "" {
		return out
	}
	s.made[name] = out
	return ref
}

func (s *schemas) fields(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			s.fields(inner, properties, required)
			continue
		case name == "":
			name = f.Name
		}
		schema := s.of(f.Type)
		if text := s.comments[nameOf(t)+"."+f.Name]; text != "" {
			if schema["$ref"] != nil {
				schema = object{"allOf": []any{schema}}
			}
			schema["description"] = text
		}
		if f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omit") {
			schema = object{"anyOf": []any{schema, object{"type": "null"}}}
		}
		properties[name] = schema
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}

// commentsOf reads the comments of types and fields in the packages of a repository.
func commentsOf(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, dir := range []string{".", "dataplane", "internal/admin", "internal/archive", "internal/plan", "internal/assign", "internal/health", "internal/load", "internal/capacity"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.TYPE {
					note(out, parsed.Name.Name, d)
				}
				return true
			})
		}
	}
	return out, nil
}

func note(out map[string]string, pkg string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		name := pkg + "." + ts.Name.Name
		out[name] = text(d.Doc)
		st, ok := ts.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range st.Fields.List {
			for _, n := range f.Names {
				if out[name+"."+n.Name] = text(f.Doc); out[name+"."+n.Name] == "" {
					out[name+"."+n.Name] = text(f.Comment)
				}
			}
		}
	}
}

func text(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return strings.Join(strings.Fields(c.Text()), " ")
}
