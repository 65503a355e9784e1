package replica

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
)

// packers are idle writers of pack: a new one takes more than a megabyte.
var packers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is right
	return w
}}

// pack compresses a plan, fast rather than well.
func pack(data []byte) []byte {
	var out bytes.Buffer
	w := packers.Get().(*flate.Writer) //nolint:forcetypeassert // it holds nothing else
	defer func() {
		w.Reset(io.Discard) // so that it does not keep out
		packers.Put(w)
	}()
	w.Reset(&out)
	_, err := w.Write(data)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return data // a buffer in memory takes everything
	}
	return out.Bytes()
}

// unpack undoes pack, for at most the size of a plan.
func unpack(data []byte) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), MaxContent+1))
	if err != nil {
		return nil, fmt.Errorf("it can't be unpacked: %w", err)
	}
	if len(out) > MaxContent {
		return nil, fmt.Errorf("it has more than %d bytes, unpacked", MaxContent)
	}
	return out, nil
}
