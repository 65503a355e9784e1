package hds

import (
	"errors"
	"io"
	"net/http"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/wire"
)

// RESTPath is where checkers that poll over HTTP post their messages.
const RESTPath = "/v3/discovery:health_check"

// maxBody bounds a message in JSON, in bytes.
const maxBody = 4 << 20

// Handler serves health discovery over HTTP: POST to [RESTPath] with a
// HealthCheckRequestOrEndpointHealthResponse in JSON, in either spelling of the
// field names; a HealthCheckRequest alone is taken, too. The answer is a
// HealthCheckSpecifier in JSON with the field names of the proto files. See
// [CheckerHeader] for reports.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			code := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), code)
			return
		}
		m, err := messageOfJSON(body)
		if err != nil {
			http.Error(w, "not a HealthCheckRequestOrEndpointHealthResponse in JSON: "+err.Error(), http.StatusBadRequest)
			return
		}
		spec, id, err := s.fetch(r.Context(), m, r.Header.Get(CheckerHeader), r.RemoteAddr, time.Now())
		if err != nil {
			http.Error(w, status.Convert(err).Message(), httpStatus(status.Code(err)))
			return
		}
		out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(spec)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(CheckerHeader, id)
		_, _ = w.Write(out) //nolint:gosec // JSON by its content type; when the client has gone, nobody is left to tell
	})
}

// messageOfJSON reads a message, or a request alone. Fields that are not known
// are of a later version.
func messageOfJSON(body []byte) (wire.HealthMessage, error) {
	var m healthv3.HealthCheckRequestOrEndpointHealthResponse
	lenient := protojson.UnmarshalOptions{DiscardUnknown: true}
	if err := lenient.Unmarshal(body, &m); err != nil {
		return wire.HealthMessage{}, err
	}
	if m.GetRequestType() == nil {
		var bare healthv3.HealthCheckRequest
		if err := lenient.Unmarshal(body, &bare); err == nil && proto.Size(bare.GetNode()) > 0 {
			return wire.HealthMessage{Request: &bare}, nil
		}
	}
	return wire.HealthMessageOf(&m), nil
}

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
