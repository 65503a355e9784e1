// Package client2017 is a client of the API as it was between the end of
// November 2017 and the end of January 2018, for tests. It reads with the
// messages of that time, which stand under proto, and takes nothing that they
// do not know: what a server sends to such a client must hold only fields that
// it understands.
//
// The messages are compiled when they are first used and kept out of the
// registries of the process, where types of the same names live.
package client2017

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

//go:embed proto
var sources embed.FS

const (
	pkg        = "envoy.api.v2."
	typePrefix = "type.googleapis.com/"
	anyName    = "google.protobuf.Any"
)

// files are the compiled messages.
var files = sync.OnceValues(func() (linker.Files, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: func(path string) (io.ReadCloser, error) { return sources.Open("proto/" + path) },
		}),
	}
	out, err := compiler.Compile(context.Background(),
		"envoy/api/v2/base.proto", "envoy/api/v2/discovery.proto", "envoy/api/v2/eds.proto", "envoy/api/v2/hds.proto")
	if err != nil {
		return nil, fmt.Errorf("the messages of 2017: %w", err)
	}
	return out, nil
})

// New makes an empty message, by its name within envoy.api.v2.
func New(name string) (*dynamicpb.Message, error) {
	all, err := files()
	if err != nil {
		return nil, err
	}
	d, err := all.AsResolver().FindDescriptorByName(protoreflect.FullName(pkg + name))
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", pkg, name, err)
	}
	m, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s%s is not a message", pkg, name)
	}
	return dynamicpb.NewMessage(m), nil
}

// Decode reads a message of that name. Fields that were not there in 2017 are
// an error, which names the message that holds them.
func Decode(name string, encoded []byte) (*dynamicpb.Message, error) {
	m, err := New(name)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(encoded, m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, Strict(m)
}

// Strict refuses a message with fields or values that were not there in 2017,
// at any depth, also in resources.
func Strict(m protoreflect.Message) error {
	name := m.Descriptor().FullName()
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		return fmt.Errorf("%s holds fields of a later time: %x", name, []byte(unknown))
	}
	if name == anyName {
		return strictAny(m)
	}
	var err error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() == nil {
				return true
			}
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = Strict(v.Message())
				return err == nil
			})
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = strictValue(f, v.List().Get(i))
			}
		default:
			err = strictValue(f, v)
		}
		return err == nil
	})
	return err
}

func strictValue(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case f.Message() != nil:
		return Strict(v.Message())
	case f.Enum() != nil && f.Enum().Values().ByNumber(v.Enum()) == nil:
		return fmt.Errorf("%s is %d, a value of a later time", f.FullName(), v.Enum())
	}
	return nil
}

// strictAny looks into a resource.
func strictAny(m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	url := m.Get(fields.ByName("type_url")).String()
	name, ok := strings.CutPrefix(url, typePrefix+pkg)
	if !ok {
		return fmt.Errorf("a resource of type %s, want one of %s%s", url, typePrefix, pkg)
	}
	_, err := Decode(name, m.Get(fields.ByName("value")).Bytes())
	return err
}

// encode makes the message of that name from a value that JSON turns into the
// names of its fields.
func encode(name string, from any) (proto.Message, error) {
	m, err := New(name)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// decode is the inverse of encode, after a strict look at the message.
func decode(m *dynamicpb.Message, to any) error {
	if err := Strict(m); err != nil {
		return err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Descriptor().FullName(), err)
	}
	return json.Unmarshal(text, to)
}
