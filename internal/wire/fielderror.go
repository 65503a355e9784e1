package wire

import (
	"errors"
	"fmt"
)

// ErrMessage is wrapped by every error about an inbound message.
var ErrMessage = errors.New("bad message")

// FieldError says which field of a message breaks which rule.
type FieldError struct {
	Field string // path of the field, as in the proto file: node.locality.zone
	Text  string // what is wrong and what is wanted
	base  error
}

// Error names the field first.
func (e *FieldError) Error() string { return e.Field + ": " + e.Text }

// Unwrap gives ErrMessage or ErrRefused.
func (e *FieldError) Unwrap() error { return e.base }

// BadMessage makes the error of an inbound message; the field is named as in the
// proto file.
func BadMessage(field, text string) error { return badMessage(field, "%s", text) }

func badMessage(field, format string, args ...any) error {
	return &FieldError{Field: field, Text: fmt.Sprintf(format, args...), base: ErrMessage}
}

func refused(field, format string, args ...any) error {
	return &FieldError{Field: field, Text: fmt.Sprintf(format, args...), base: ErrRefused}
}

// within names the field of an error from further outside: what it says of a
// field is true of that field of the message that the prefix names.
func within(err error, prefix string, args ...any) error {
	field, ok := errors.AsType[*FieldError](err)
	if !ok {
		return err
	}
	outer := *field
	outer.Field = fmt.Sprintf(prefix, args...)
	if field.Field != "" {
		outer.Field += "." + field.Field
	}
	return &outer
}
