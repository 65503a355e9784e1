package config

import (
	"bytes"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

// AsJSON gives a document as JSON: unchanged if it looks like JSON, else
// translated from YAML with every value in the line where it stands. file is the
// name that errors carry; the error, if any, is an [*Error].
func AsJSON(file string, data []byte) ([]byte, error) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(data) <= MaxBytes && bytes.HasPrefix(trimmed, []byte("{")) {
		return data, nil
	}
	doc := strict.Parse(file, data)
	root, ok := doc.Root()
	if !ok {
		_, err := doc.Result()
		return nil, err
	}
	return root.JSON(), nil
}
