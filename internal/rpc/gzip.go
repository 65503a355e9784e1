package rpc

import (
	"compress/gzip"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
)

// Gzip is the name of the compression that clients may use for requests.
const Gzip = "gzip"

// decompressing bounds how many messages are decompressed at the same time. A
// few kilobytes can become the largest message that gRPC accepts, and a
// connection may carry a thousand streams.
const decompressing = 4

// init registers the compressor as the gzip of gRPC itself does, which has no
// such bound.
func init() { //nolint:gochecknoinits // gRPC has no other place for compressors
	encoding.RegisterCompressor(&gzipCompressor{slots: make(chan struct{}, decompressing)})
}

// gzipCompressor reads messages that clients compressed. gRPC bounds their size
// and closes each reader.
type gzipCompressor struct {
	slots   chan struct{}
	readers sync.Pool
}

// Name implements encoding.Compressor.
func (*gzipCompressor) Name() string { return Gzip }

// Compress implements encoding.Compressor. Servers do not use it: what they
// send is encoded once for all streams.
func (*gzipCompressor) Compress(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }

// Decompress implements encoding.Compressor. It waits while too many messages are
// being decompressed; each of them needs processor time only, so none waits long.
func (c *gzipCompressor) Decompress(r io.Reader) (io.Reader, error) {
	c.slots <- struct{}{}
	z, reused := c.readers.Get().(*gzip.Reader)
	var err error
	if reused {
		err = z.Reset(r)
	} else {
		z, err = gzip.NewReader(r)
	}
	if err != nil {
		<-c.slots
		return nil, err
	}
	return &gzipReader{Reader: z, from: c}, nil
}

// gzipReader gives its slot back when it is closed.
type gzipReader struct {
	*gzip.Reader

	from *gzipCompressor
}

// Close implements io.Closer.
func (r *gzipReader) Close() error {
	if r.from == nil {
		return errors.New("closed twice")
	}
	err := r.Reader.Close()
	r.from.readers.Put(r.Reader)
	<-r.from.slots
	r.from = nil
	return err
}
