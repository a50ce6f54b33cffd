package lending

import (
	"context"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// MediaBytes is the media type of a file's content.
const MediaBytes = "application/octet-stream"

// WriteFile writes a file of an instance. It appears whole, when all of content has come,
// or not at all. The instance of the request is filled in.
func WriteFile(ctx context.Context, instances Instances, who tenant.Tenant, id string, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	var info sdk.FileInfo
	err := Upload(ctx, instances, who, id, sdk.CapabilityFiles, content, func(ctx context.Context, files sdk.Files, instanceID string, content io.Reader) (err error) {
		req.InstanceID = instanceID
		info, err = files.WriteFile(ctx, req, content)
		return err
	})
	return info, err
}

// ReadFile opens a file of an instance and lets use read the part that the request asks
// for. The instance of the request is filled in.
func ReadFile(ctx context.Context, instances Instances, who tenant.Tenant, id string, req sdk.ReadFileRequest, use func(info sdk.FileInfo, content io.Reader) error) error {
	var info sdk.FileInfo
	return Download(ctx, instances, who, id, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) (content io.ReadCloser, err error) {
		req.InstanceID = instanceID
		info, content, err = files.ReadFile(ctx, req)
		return content, err
	}, func(content io.Reader) error { return use(info, content) })
}

// ServeFile answers a GET or HEAD with a file of an instance, or with the range of its
// bytes that the request asks for.
func ServeFile(w http.ResponseWriter, r *http.Request, instances Instances, who tenant.Tenant, id, name string) error {
	part := byteRange{}
	if r.Header.Get("If-Range") == "" { // the whole file is right in any case
		part = parseRange(r.Header.Get("Range"))
	}
	req := sdk.ReadFileRequest{Path: name, Offset: part.offset, Length: part.length}
	return ReadFile(r.Context(), instances, who, id, req, func(info sdk.FileInfo, content io.Reader) error {
		header := w.Header()
		Attach(w, MediaBytes, path.Base(info.Path))
		header.Set("Accept-Ranges", "bytes")
		if !info.ModifiedAt.IsZero() {
			etag := fmt.Sprintf(`W/"%x-%x"`, info.ModifiedAt.UnixNano(), info.Size)
			header.Set("ETag", etag)
			header.Set("Last-Modified", info.ModifiedAt.UTC().Format(http.TimeFormat))
			if r.Header.Get("If-None-Match") == etag {
				w.WriteHeader(http.StatusNotModified)
				return nil
			}
		}
		from, count := part.of(info.Size)
		status := http.StatusOK
		switch {
		case part.given && count == 0:
			return unsatisfiable(info.Size)
		case part.given:
			status = http.StatusPartialContent
			header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+count-1, info.Size))
		}
		header.Set("Content-Length", strconv.FormatInt(count, 10))
		w.WriteHeader(status)
		if r.Method == http.MethodHead {
			return nil
		}
		sent := &io.LimitedReader{R: content, N: count}
		if err := Send(w, sent); err != nil {
			return err
		}
		if sent.N > 0 {
			return sdk.Errorf(sdk.CodeConflict, "the file became shorter while it was read")
		}
		return nil
	})
}

// Attach sets the headers of something that no browser may show: it comes from
// code that nobody has vouched for.
func Attach(w http.ResponseWriter, mediaType, name string) {
	header := w.Header()
	header.Set("Content-Type", mediaType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": name})
	if disposition == "" {
		disposition = "attachment"
	}
	header.Set("Content-Disposition", disposition)
}

// byteRange is what the header Range asks for. The zero value is all.
type byteRange struct {
	given bool
	// offset from the end if negative; length 0 is to the end.
	offset, length int64
}

// parseRange reads a range of bytes. Several at once, other units and what makes
// no sense are all, as RFC 9110 allows.
func parseRange(header string) byteRange {
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash {
		return byteRange{}
	}
	from, fromErr := strconv.ParseUint(first, 10, 63)
	to, toErr := strconv.ParseUint(last, 10, 63)
	switch {
	case first == "" && toErr == nil && to > 0:
		return byteRange{given: true, offset: -int64(to)}
	case fromErr == nil && last == "":
		return byteRange{given: true, offset: int64(from)}
	case fromErr == nil && toErr == nil && from <= to && to-from < math.MaxInt64:
		return byteRange{given: true, offset: int64(from), length: int64(to-from) + 1}
	default:
		return byteRange{}
	}
}

// of returns which bytes of a file of a size are meant.
func (r byteRange) of(size int64) (from, count int64) {
	from = r.offset
	if from < 0 {
		from = max(from+size, 0)
	}
	from = min(from, size)
	count = size - from
	if r.length > 0 {
		count = min(count, r.length)
	}
	return from, count
}

// unsatisfiable refuses a range that begins behind the end of a file.
func unsatisfiable(size int64) error {
	e := rest.BadRequest(http.StatusRequestedRangeNotSatisfiable, fmt.Sprintf("The range begins behind the end of the file, which has %d bytes.", size))
	e.Headers = map[string]string{"Content-Range": fmt.Sprintf("bytes */%d", size)}
	return e
}
