package rpc

import (
	"errors"
	"fmt"
)

// ErrMessage is wrapped by every error about an inbound message.
var ErrMessage = errors.New("bad message")

// ErrRefused is wrapped by the errors about messages that must not go out,
// because some kind of client would reject them.
var ErrRefused = errors.New("refused to send")

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
func BadMessage(field, text string) error { return BadMessagef(field, "%s", text) }

// BadMessagef is BadMessage with a format.
func BadMessagef(field, format string, args ...any) error {
	return &FieldError{Field: field, Text: fmt.Sprintf(format, args...), base: ErrMessage}
}

// Refusedf makes the error of a message that must not go out; the field is named as
// in the proto file.
func Refusedf(field, format string, args ...any) error {
	return &FieldError{Field: field, Text: fmt.Sprintf(format, args...), base: ErrRefused}
}

// Within names the field of an error from further outside: what it says of a
// field is true of that field of the message that the prefix names.
func Within(err error, prefix string, args ...any) error {
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
