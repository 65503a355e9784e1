// Package deep writes Go values as bytes and reads them back, whatever they are
// made of, fields that nobody else can see included: the state of pure code in
// the middle of its work, so that a copy of it can go on elsewhere exactly as
// the original does.
//
// What is shared stays shared: two pointers, maps or slices that are the same
// memory are so again after reading, because pure code compares by identity
// what is immutable. Times keep their monotonic reading, because differences of
// times go into numbers. Channels, functions and interfaces can't be written;
// [Check] tells before anything is.
//
// What a value looks like in bytes follows from its types. [Fingerprint] names
// them, so that bytes are read only by a program that knows the same ones.
package deep

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"
	"unsafe"
)

// ErrType says that a type can't be written.
var ErrType = errors.New("type can't be written")

// ErrData says that bytes are not what was written.
var ErrData = errors.New("damaged data")

// coder knows how to write and read values of one type. All coders of a type
// are the same one: it stands for the type.
type coder struct {
	typ    reflect.Type
	size   uintptr
	elem   *coder  // of pointers, slices, arrays and maps
	key    *coder  // of maps
	fields []field // of structs
	write  func(e *Encoder, c *coder, p unsafe.Pointer)
	read   func(d *Decoder, c *coder, p unsafe.Pointer)
	sum    func(h *hasher, c *coder, p unsafe.Pointer)
}

type field struct {
	name   string
	offset uintptr
	coder  *coder
}

// coders are made once for each type; types are few.
var coders = struct {
	mu  sync.Mutex
	all map[reflect.Type]*coder
}{all: map[reflect.Type]*coder{}}

// coderOf returns the coder of a type, or says which part of it can't be written.
func coderOf(t reflect.Type) (*coder, error) {
	coders.mu.Lock()
	defer coders.mu.Unlock()
	if c, ok := coders.all[t]; ok {
		return c, nil
	}
	made := map[reflect.Type]*coder{}
	c, err := build(t, made, t.String())
	if err != nil {
		return nil, err
	}
	maps.Copy(coders.all, made)
	return c, nil
}

// pointed is what v, a pointer, points to.
func pointed(v any) (ref, error) {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return ref{}, fmt.Errorf("%w: %T is no pointer to a value", ErrType, v)
	}
	c, err := coderOf(p.Type())
	return ref{p: p.UnsafePointer(), c: c}, err
}

func build(t reflect.Type, made map[reflect.Type]*coder, path string) (*coder, error) {
	if c, ok := coders.all[t]; ok {
		return c, nil
	}
	if c, ok := made[t]; ok {
		return c, nil
	}
	c := &coder{typ: t, size: t.Size()}
	made[t] = c // first: types refer to themselves
	var err error
	switch t.Kind() {
	case reflect.Bool, reflect.Uint8:
		c.write, c.read, c.sum = writeByte, readByte, sumByte
	case reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint, reflect.Uintptr:
		c.write, c.read, c.sum = writeUint, readUint, sumUint
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		c.write, c.read, c.sum = writeInt, readInt, sumInt
	case reflect.Float64:
		c.write, c.read, c.sum = writeFloat, readFloat, sumFloat
	case reflect.Float32:
		c.write, c.read, c.sum = writeFloat32, readFloat32, sumFloat32
	case reflect.String:
		c.write, c.read, c.sum = writeString, readString, sumString
	case reflect.Struct:
		err = c.buildStruct(made, path)
	case reflect.Pointer:
		c.write, c.read, c.sum = writePointer, readPointer, sumPointer
		c.elem, err = build(t.Elem(), made, path+".*")
	case reflect.Slice:
		c.write, c.read, c.sum = writeSlice, readSlice, sumSlice
		c.elem, err = build(t.Elem(), made, path+"[]")
	case reflect.Array:
		c.write, c.read, c.sum = writeArray, readArray, sumArray
		c.elem, err = build(t.Elem(), made, path+"[]")
	case reflect.Map:
		c.write, c.read, c.sum = writeMap, readMap, sumMap
		if c.key, err = build(t.Key(), made, path+"[key]"); err == nil {
			err = plainKey(t.Key(), path)
		}
		if err == nil {
			c.elem, err = build(t.Elem(), made, path+"[]")
		}
	default:
		err = fmt.Errorf("%w: %s is a %s", ErrType, path, t.Kind())
	}
	return c, err
}

func (c *coder) buildStruct(made map[reflect.Type]*coder, path string) error {
	if c.typ == reflect.TypeFor[time.Time]() {
		c.write, c.read, c.sum = writeTime, readTime, sumTime
		return checkTime()
	}
	c.write, c.read, c.sum = writeStruct, readStruct, sumStruct
	for f := range c.typ.Fields() {
		fc, err := build(f.Type, made, path+"."+f.Name)
		if err != nil {
			return err
		}
		c.fields = append(c.fields, field{name: f.Name, offset: f.Offset, coder: fc})
	}
	return nil
}

// plainKey refuses keys of maps that hold references: they have no order.
func plainKey(t reflect.Type, path string) error {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fmt.Errorf("%w: %s has keys with a %s in them", ErrType, path, t.Kind())
	case reflect.Array:
		return plainKey(t.Elem(), path)
	case reflect.Struct:
		for f := range t.Fields() {
			if err := plainKey(f.Type, path); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}

// at is the memory of an element.
func at(p unsafe.Pointer, offset uintptr) unsafe.Pointer { return unsafe.Add(p, offset) }

// isZero reports whether memory is all zero.
func isZero(p unsafe.Pointer, size uintptr) bool {
	offset := uintptr(0)
	for ; offset+8 <= size; offset += 8 {
		if *(*uint64)(at(p, offset)) != 0 {
			return false
		}
	}
	for ; offset < size; offset++ {
		if *(*byte)(at(p, offset)) != 0 {
			return false
		}
	}
	return true
}
