package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Where checkers that poll over HTTP post their messages, as Envoy's API has it.
const (
	CheckerPath   = "/v3/discovery:health_check"
	CheckerPathV2 = "/v2/discovery:health_check" // in the API of v2 or of 2017
)

// IsCheckerPath reports whether checkers that poll post to a path.
func IsCheckerPath(path string) bool { return path == CheckerPath || path == CheckerPathV2 }

// maxPollBody bounds what one poll over HTTP may send, in bytes.
const maxPollBody = 4 << 20

// ReadPoll reads the body of a poll, which counts as kept by the request; one that is
// compressed with gzip is bounded by what it becomes. On an error it returns the HTTP status with
// which the poll is refused.
func ReadPoll(w http.ResponseWriter, r *http.Request) ([]byte, int, error) {
	compressed, err := Compressed(w, r)
	if err != nil {
		return nil, http.StatusUnsupportedMediaType, err
	}
	body, err := readAll(r.Context(), LimitBody(w, r, maxPollBody), 0)
	if err == nil && compressed {
		body, err = decompressed(r.Context(), body)
	}
	if err == nil {
		return body, http.StatusOK, nil
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, http.StatusRequestEntityTooLarge, err
	}
	if errors.Is(err, context.Canceled) {
		return nil, http.StatusServiceUnavailable, err
	}
	return nil, http.StatusBadRequest, err
}

// Compressed reports whether the body of a request is compressed with gzip. An error says that it
// has another encoding; the answer then tells which one is supported.
func Compressed(w http.ResponseWriter, r *http.Request) (bool, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(strings.Join(r.Header.Values("Content-Encoding"), ", "))); encoding {
	case "", "identity":
		return false, nil
	case Gzip, "x-gzip": // RFC 9110, 8.4.1.3
		return true, nil
	default:
		w.Header().Set("Accept-Encoding", Gzip)
		return false, fmt.Errorf("Content-Encoding %.40q is not supported: send gzip, or do not compress", encoding)
	}
}

// decompressed reads what a body holds that was compressed with gzip. The body is there as a
// whole: a client that sends slowly does not keep others from decompressing.
func decompressed(ctx context.Context, body []byte) ([]byte, error) {
	z, err := decompressor.Decompress(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the body is not gzip: %w", err)
	}
	out, err := readAll(ctx, io.LimitReader(z, maxPollBody+1), cap(body))
	if closer, ok := z.(io.Closer); ok {
		if failed := closer.Close(); err == nil { // it repeats an error of reading
			err = failed
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the body is damaged gzip: %w", err)
	case len(out) > maxPollBody:
		return nil, fmt.Errorf("decompressed: %w", &http.MaxBytesError{Limit: maxPollBody})
	}
	Keeps(ctx, cap(out))
	return out, nil
}

// leastRead is what is read of a body at first, in bytes.
const leastRead = 4 << 10

// readAll reads all that there is, and tells what that takes, with so many bytes besides,
// before it takes it.
func readAll(ctx context.Context, in io.Reader, besides int) ([]byte, error) {
	body := make([]byte, 0, leastRead)
	for {
		if len(body) == cap(body) {
			Keeps(ctx, 2*cap(body)+besides)
			if err := ctx.Err(); err != nil { // too much is kept, and this request was ended for it
				return nil, err
			}
			body = append(make([]byte, 0, 2*cap(body)), body...)
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// LimitBody returns the body of a request, of which it reads at most limit bytes.
// http.MaxBytesReader alone tells the server of what it cut off only when it is
// given the server's own writer. A connection that is not known to hold the rest of
// a body is closed at once, and the reset that the client gets for that rest may
// take the answer away with it.
func LimitBody(w http.ResponseWriter, r *http.Request, limit int64) io.ReadCloser {
	for {
		wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return http.MaxBytesReader(w, r.Body, limit)
		}
		w = wrapped.Unwrap()
	}
}

// HTTPRefusal answers a poll with a status that a stream would have ended with, and at a reached
// limit with the time to try again. The server ends requests early at the limits of its memory and
// when it stops: such a poll may come again, like a stream.
func HTTPRefusal(w http.ResponseWriter, err error) {
	st := status.Convert(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		st = status.New(codes.Unavailable, "isobar: the server ended this request; try again later")
	}
	if st.Code() == codes.ResourceExhausted || st.Code() == codes.Unavailable {
		w.Header().Set("Retry-After", RetryAfter())
	}
	http.Error(w, st.Message(), httpStatus(st.Code()))
}

// httpStatus returns the HTTP status that says to those who poll what a code says
// over gRPC.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.FailedPrecondition:
		return http.StatusConflict
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

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

// Unwrap returns ErrMessage or ErrRefused.
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

// RejectCode is why a part of a report was left out, as a metric label.
type RejectCode string

// Reasons that several kinds of report share.
const (
	RejectName     RejectCode = "name"     // no or an overlong name
	RejectInterval RejectCode = "interval" // negative or absurd
	RejectCounter  RejectCode = "counter"  // more than a client can count
	RejectMetric   RejectCode = "metric"   // NaN, infinite, negative or absurd
	RejectLocality RejectCode = "locality" // overlong, or an impossible priority
	RejectSize     RejectCode = "size"     // a list beyond its bound
)
