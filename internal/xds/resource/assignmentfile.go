package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// PlaceError says where in a text something is wrong. It wraps ErrMessage.
type PlaceError struct {
	Line, Column int // from 1; columns count characters
	Text         string
}

// Error returns "line:column: text".
func (e *PlaceError) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Text) }

// Unwrap returns ErrMessage.
func (e *PlaceError) Unwrap() error { return rpc.ErrMessage }

// ReadAssignment reads a ClusterLoadAssignment of v3 or v2 in proto JSON, in
// either spelling of the fields. It may be wrapped in an Any, in a Resource, or
// in a discovery response that has no other assignment. Fields that are not
// known are left out; warnings report the first of them. Errors are of type
// [*PlaceError].
func ReadAssignment(text []byte) (m *endpointv3.ClusterLoadAssignment, warnings []error, err error) {
	found, err := findAssignment(text, span{0, len(text)}, 0)
	if err != nil {
		return nil, nil, err
	}
	// Everything around it becomes blank, so that places stay those of the file.
	piece := bytes.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, text[:found.from])
	piece = append(piece, text[found.from:found.to]...)

	m = &endpointv3.ClusterLoadAssignment{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true, Resolver: opaque{}}).Unmarshal(piece, m); err != nil {
		return nil, nil, placed(err)
	}
	strict := protojson.UnmarshalOptions{Resolver: opaque{}}
	if found.typed {
		err = strict.Unmarshal(piece, &anypb.Any{})
	} else {
		err = strict.Unmarshal(piece, &endpointv3.ClusterLoadAssignment{})
	}
	if err != nil {
		warnings = append(warnings, placed(err))
	}
	return m, warnings, nil
}

// span is a part of a text.
type span struct{ from, to int }

type foundAssignment struct {
	span

	typed bool // it has an @type
}

// maxWraps bounds how deep an assignment may be wrapped: a response has
// Resources, which have an Any.
const maxWraps = 4

// findAssignment looks for the one assignment in a JSON value.
func findAssignment(text []byte, at span, depth int) (foundAssignment, error) {
	fields, err := members(text, at)
	if err != nil {
		return foundAssignment{}, err
	}
	typeURL := ""
	if t, ok := fields["@type"]; ok {
		_ = json.Unmarshal(text[t.from:t.to], &typeURL) // of another type: empty, and refused below
	}
	kind, ok := wrapping(typeURL, fields)
	if !ok || depth == maxWraps {
		what := "this has no endpoints, policy or cluster_name"
		if typeURL != "" {
			what = fmt.Sprintf("%.200q", typeURL)
		}
		return foundAssignment{}, placeError(text, at.from,
			what+": not a ClusterLoadAssignment; give one, or a DiscoveryResponse that has one")
	}
	switch kind {
	case wrapResource:
		return findAssignment(text, fields["resource"], depth+1)
	case wrapResponse:
		return findOne(text, fields["resources"], depth+1)
	default:
		return foundAssignment{at, typeURL != ""}, nil
	}
}

// findOne looks for the one assignment in the resources of a response.
func findOne(text []byte, list span, depth int) (foundAssignment, error) {
	items, err := elements(text, list)
	if err != nil {
		return foundAssignment{}, err
	}
	if len(items) != 1 {
		return foundAssignment{}, placeError(text, list.from,
			fmt.Sprintf("%d resources, want one: cut the assignment out, for example with jq '.resources[0]'", len(items)))
	}
	return findAssignment(text, items[0], depth)
}

type wrapKind uint8

const (
	wrapNone wrapKind = iota
	wrapResource
	wrapResponse
)

// wrapping tells what an object is, from its type or, without one, its fields.
func wrapping(typeURL string, fields map[string]span) (wrapKind, bool) {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { _, ok := fields[n]; return ok })
	}
	switch baseName(typeURL) {
	case "envoy.config.endpoint.v3.ClusterLoadAssignment", "envoy.api.v2.ClusterLoadAssignment":
		return wrapNone, true
	case "envoy.service.discovery.v3.Resource", "envoy.api.v2.Resource":
		return wrapResource, has("resource")
	case "envoy.service.discovery.v3.DiscoveryResponse", "envoy.api.v2.DiscoveryResponse",
		"envoy.service.discovery.v3.DeltaDiscoveryResponse", "envoy.api.v2.DeltaDiscoveryResponse":
		return wrapResponse, has("resources")
	case "":
		switch {
		case has("cluster_name", "clusterName", "endpoints", "policy", "named_endpoints", "namedEndpoints"):
			return wrapNone, true
		case has("resources"):
			return wrapResponse, true
		case has("resource"):
			return wrapResource, true
		}
	}
	return wrapNone, false
}

// members returns where the values of an object stand.
func members(text []byte, at span) (map[string]span, error) {
	out := map[string]span{}
	err := each(text, at, '{', func(d *json.Decoder, value func() (span, error)) error {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		out[name], err = value()
		return err
	})
	return out, err
}

// elements returns where the values of a list stand.
func elements(text []byte, at span) (out []span, err error) {
	err = each(text, at, '[', func(_ *json.Decoder, value func() (span, error)) error {
		s, err := value()
		out = append(out, s)
		return err
	})
	return out, err
}

// each walks over the parts of an object or list.
func each(text []byte, at span, open json.Delim, step func(*json.Decoder, func() (span, error)) error) error {
	d := json.NewDecoder(bytes.NewReader(text[at.from:at.to]))
	first, err := d.Token()
	if err == nil && first != open {
		what := map[json.Delim]string{'{': "an object", '[': "a list"}[open]
		return placeError(text, at.from, "not "+what)
	}
	value := func() (span, error) {
		var raw json.RawMessage
		err := d.Decode(&raw)
		end := at.from + int(d.InputOffset())
		return span{end - len(raw), end}, err
	}
	for err == nil && d.More() {
		err = step(d, value)
	}
	if err == nil {
		_, err = d.Token()
	}
	if err == nil {
		return nil
	}
	// The parser of messages says better what is wrong, and where.
	if better := protojson.Unmarshal(text, &anypb.Any{}); better != nil && strings.Contains(better.Error(), "syntax error") {
		return placed(better)
	}
	return placeError(text, at.from+int(d.InputOffset()), "not valid JSON: "+err.Error())
}

func placeError(text []byte, offset int, what string) *PlaceError {
	before := text[:min(offset, len(text))]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return &PlaceError{Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(line), Text: what}
}

// placeInMessage finds the place in an error of protojson.
var placeInMessage = regexp.MustCompile(`^proto:[\s\x{00a0}]*(syntax error )?\(line (\d+):(\d+)\):[\s\x{00a0}]*`)

func placed(err error) *PlaceError {
	message := err.Error()
	m := placeInMessage.FindStringSubmatch(message)
	if m == nil {
		return &PlaceError{Line: 1, Column: 1, Text: message}
	}
	line, _ := strconv.Atoi(m[2])
	column, _ := strconv.Atoi(m[3])
	what := strings.TrimSpace(strings.TrimPrefix(message, m[0]))
	if m[1] != "" {
		what = "syntax error: " + what
	}
	return &PlaceError{Line: line, Column: column, Text: what}
}

// opaque resolves the type of an assignment, and every other to a message
// without fields: what stands in metadata decides nothing, and its types need
// not be known.
type opaque struct{}

func (opaque) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if name.Name() == "ClusterLoadAssignment" {
		return (&endpointv3.ClusterLoadAssignment{}).ProtoReflect().Type(), nil
	}
	return (&corev3.AggregatedConfigSource{}).ProtoReflect().Type(), nil
}

func (o opaque) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	return o.FindMessageByName(protoreflect.FullName(baseName(url)))
}

func (opaque) FindExtensionByName(protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

func (opaque) FindExtensionByNumber(protoreflect.FullName, protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}
