package testhelp

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ClearField clears the n-th populated field of m, depth first, and returns its name.
func ClearField(m protoreflect.Message, n *int) (protoreflect.FullName, bool) {
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	for _, f := range fields {
		if *n == 0 {
			m.Clear(f)
			return f.FullName(), true
		}
		*n--
		switch {
		case f.IsMap(), f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			list := m.Get(f).List()
			for i := range list.Len() {
				if name, ok := ClearField(list.Get(i).Message(), n); ok {
					return name, true
				}
			}
		default:
			if name, ok := ClearField(m.Get(f).Message(), n); ok {
				return name, true
			}
		}
	}
	return "", false
}
