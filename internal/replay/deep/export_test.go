package deep

import (
	"errors"
	"reflect"
)

// Check returns an error for each of the values that has a type that can't be encoded. It names the field.
func Check(values ...any) error {
	var errs []error
	for _, v := range values {
		_, err := coderOf(reflect.TypeOf(v))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Rest returns the bytes that were not read.
func (d *Decoder) Rest() []byte { return d.data }
