package isobar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// Metadata is what the metadata of an endpoint or a locality says, by filter:
// filter_metadata of envoy.config.core.v3.Metadata as canonical JSON, an object
// of objects without blanks and with sorted keys. So equal metadata are equal
// text. Empty = none. Make it with [ParseMetadata].
type Metadata string

// Bounds of metadata.
const (
	MaxMetadata      = 4096 // bytes of canonical JSON
	MaxMetadataDepth = 16   // objects and lists within each other; clients refuse messages that are nested too deep
)

// ErrBadMetadata is wrapped by the errors of [ParseMetadata].
var ErrBadMetadata = errors.New("bad metadata")

// ParseMetadata reads an object of objects, by the name of the filter that they
// are for. Numbers become float64, as protobuf has them.
func ParseMetadata(b []byte) (Metadata, error) {
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%w: not UTF-8", ErrBadMetadata)
	}
	var filters map[string]map[string]any
	if err := json.Unmarshal(b, &filters); err != nil {
		return "", fmt.Errorf("%w: want an object of objects: %w", ErrBadMetadata, err)
	}
	return NewMetadata(filters)
}

// NewMetadata brings metadata into their canonical form. The values are those
// of encoding/json: nil, bool, float64, string, []any and map[string]any.
func NewMetadata(filters map[string]map[string]any) (Metadata, error) {
	if len(filters) == 0 {
		return "", nil
	}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		switch fields := filters[name]; {
		case name == "":
			return "", fmt.Errorf("%w: a filter without a name", ErrBadMetadata)
		case fields == nil:
			return "", fmt.Errorf("%w: filter %.100q has no value", ErrBadMetadata, name)
		case depthOf(fields) > MaxMetadataDepth:
			return "", fmt.Errorf("%w: nested deeper than %d levels for filter %.100q", ErrBadMetadata, MaxMetadataDepth, name)
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(filters); err != nil {
		return "", fmt.Errorf("%w: %w", ErrBadMetadata, err)
	}
	canonical := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(canonical) > MaxMetadata {
		return "", fmt.Errorf("%w: %d bytes, want at most %d", ErrBadMetadata, len(canonical), MaxMetadata)
	}
	return Metadata(canonical), nil
}

// depthOf counts the levels of objects and lists.
func depthOf(v any) int {
	most := 0
	switch v := v.(type) {
	case map[string]any:
		//isobar:sorted a maximum does not depend on the order
		for _, x := range v {
			most = max(most, depthOf(x))
		}
	case []any:
		for _, x := range v {
			most = max(most, depthOf(x))
		}
	default:
		return 0
	}
	return most + 1
}

// Filters returns what the metadata hold, by filter; the values are those of
// encoding/json.
func (m Metadata) Filters() (map[string]map[string]any, error) {
	if m == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	var out map[string]map[string]any
	if err := json.Unmarshal([]byte(m), &out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadMetadata, err)
	}
	return out, nil
}

// MarshalJSON writes the object.
func (m Metadata) MarshalJSON() ([]byte, error) {
	if m == "" {
		return []byte("null"), nil
	}
	return []byte(m), nil
}

// UnmarshalJSON reads an object, in whatever spelling.
func (m *Metadata) UnmarshalJSON(b []byte) error {
	v, err := ParseMetadata(b)
	if err != nil {
		return err
	}
	*m = v
	return nil
}
