package v1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const mediaBytes = "application/octet-stream"

// registerTransfers registers the routes whose bodies are files.
func (h fileRoutes) registerTransfers(a *rest.API) {
	rest.Stream(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/instances/{id}/files/content", ID: "readFile", Tag: tagFiles,
		Summary: "Read a file",
		Details: "Takes one range of bytes in the header Range. A file that becomes shorter meanwhile cuts the connection; what it grows by is not sent.",
		Query:   []rest.Parameter{pathParameterOf("The file; symbolic links are followed as long as they stay where files can be.")},
		Success: []int{http.StatusOK, http.StatusPartialContent}, Codes: fileCodes(), Produces: mediaBytes,
	}, h.readFile)
	rest.Receive(a, rest.Operation{
		Method: http.MethodPut, Path: "/api/v1/instances/{id}/files/content", ID: "writeFile", Tag: tagFiles,
		Summary: "Write a file",
		Details: "The body is the content. The file appears whole, in place of what was there, when all of it has come; else everything stays as it was.",
		Query: []rest.Parameter{
			pathParameterOf("The file."),
			{Name: "mode", Doc: "Permission bits, octal. Unless given, those of the file that is replaced, 0644 for a new one."},
			{Name: "parents", Kind: rest.Boolean, Doc: "Make directories that are missing."},
		},
		Success: []int{http.StatusOK}, Codes: fileCodes(), Consumes: mediaBytes,
	}, h.writeFile)
	rest.Stream(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/instances/{id}/archive", ID: "readArchive", Tag: tagFiles,
		Summary: "Read many files as a tar stream",
		Details: "By names relative to the directory, without compression. Symbolic links come as such; sockets, pipes and devices are left out. A failure under way cuts the connection.",
		Query: []rest.Parameter{
			{Name: "directory", Doc: "What to archive; /workspace unless given."},
			{Name: "paths", Multiple: true, Doc: "Only this file or directory below it. It may be given several times."},
		},
		Success: []int{http.StatusOK}, Codes: fileCodes(), Produces: rest.MediaTar,
	}, h.readArchive)
	rest.Receive(a, rest.Operation{
		Method: http.MethodPut, Path: "/api/v1/instances/{id}/archive", ID: "writeArchive", Tag: tagFiles,
		Summary: "Write many files from a tar stream",
		Details: "Takes files, directories and symbolic links, without compression or in gzip, and puts them over what is there. An entry with an absolute name, with .., that is a hard link, a device or a sparse file, or that leads through a symbolic link is refused, and ends the call there: what came before it stays.",
		Query:   []rest.Parameter{{Name: "directory", Doc: "Where to unpack; /workspace unless given. It must exist."}},
		Success: []int{http.StatusOK}, Codes: fileCodes(), Consumes: rest.MediaTar,
	}, h.writeArchive)
	rest.Receive(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/files", ID: "uploadFiles", Tag: tagFiles,
		Summary: "Write files from a form",
		Details: "The body is multipart/form-data; each part is a file, stored under its filename below the directory, in place of what is there. A filename may have directories, which are made; it may not be absolute or have .. in it. Each file appears whole or not at all. If one fails, those before it are written.",
		Query: []rest.Parameter{
			{Name: "directory", Doc: "Where to put them; /workspace unless given."},
			{Name: "mode", Doc: "Permission bits, octal. Unless given, those of a file that is replaced, 0644 for a new one."},
		},
		Success: []int{http.StatusOK}, Codes: fileCodes(), Consumes: rest.MediaForm,
	}, h.uploadFiles)
}

func (h fileRoutes) writeFile(r *http.Request, c rest.Call[rest.None]) (client.File, error) {
	mode, err := modeOf(c.Query.Text("mode"))
	if err != nil {
		return client.File{}, err
	}
	var file client.File
	err = upload(h.instances, r, c, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string, content io.Reader) error {
		info, err := files.WriteFile(ctx, sdk.WriteFileRequest{
			InstanceID: instanceID, Path: c.Query.Text("path"), Mode: mode, MakeParents: c.Query.Boolean("parents"),
		}, content)
		file = fileOf(info)
		return err
	})
	return file, err
}

func (h fileRoutes) writeArchive(r *http.Request, c rest.Call[rest.None]) (client.ArchiveSummary, error) {
	var summary client.ArchiveSummary
	err := upload(h.instances, r, c, sdk.CapabilityArchives, func(ctx context.Context, archives sdk.Archiver, instanceID string, content io.Reader) error {
		written, err := archives.WriteArchive(ctx, instanceID, directoryOf(c), archiveContent(content))
		summary = client.ArchiveSummary{Files: written.Files, Bytes: written.Bytes}
		return err
	})
	return summary, err
}

func directoryOf(c rest.Call[rest.None]) string {
	if directory := c.Query.Text("directory"); directory != "" {
		return directory
	}
	return workspace
}

func (h fileRoutes) readArchive(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	return leased(r.Context(), h.instances, c.Tenant, c.Path["id"], sdk.CapabilityArchives, func(ctx context.Context, archives sdk.Archiver, instanceID string) error {
		ctx, p := newPatience(ctx)
		defer p.end()
		content, err := archives.ReadArchive(ctx, sdk.ReadArchiveRequest{InstanceID: instanceID, Directory: directoryOf(c), Paths: c.Query.All("paths")})
		if err != nil {
			return p.explain(err)
		}
		defer content.Close()
		download(w, rest.MediaTar, path.Base(directoryOf(c))+".tar")
		if r.Method == http.MethodHead {
			return nil
		}
		return p.send(w, content)
	})
}

func (h fileRoutes) readFile(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	part := byteRange{}
	if r.Header.Get("If-Range") == "" { // the whole file is right in any case
		part = parseRange(r.Header.Get("Range"))
	}
	return leased(r.Context(), h.instances, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		ctx, p := newPatience(ctx)
		defer p.end()
		info, content, err := files.ReadFile(ctx, sdk.ReadFileRequest{
			InstanceID: instanceID, Path: c.Query.Text("path"), Offset: part.offset, Length: part.length,
		})
		if err != nil {
			return p.explain(err)
		}
		defer content.Close()
		header := w.Header()
		download(w, mediaBytes, path.Base(info.Path))
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
		if err := p.send(w, sent); err != nil {
			return err
		}
		if sent.N > 0 {
			return sdk.Errorf(sdk.CodeConflict, "the file became shorter while it was read")
		}
		return nil
	})
}

// download sets the headers of something that no browser may show: it comes from
// code that nobody has vouched for.
func download(w http.ResponseWriter, mediaType, name string) {
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

// upload passes a request's body on.
func upload[T any](i Instances, r *http.Request, c rest.Call[rest.None], capability sdk.Capability, write func(ctx context.Context, provider T, instanceID string, content io.Reader) error) error {
	body := &uploaded{Reader: r.Body}
	err := leased(r.Context(), i, c.Tenant, c.Path["id"], capability, func(ctx context.Context, provider T, instanceID string) error {
		ctx, p := newPatience(ctx)
		defer p.end()
		return p.explain(write(ctx, provider, instanceID, p.reading(body)))
	})
	switch {
	case err == nil:
		return nil
	case r.Context().Err() != nil:
		return r.Context().Err()
	case body.err == nil:
		return err
	case errors.Is(body.err, os.ErrDeadlineExceeded):
		return rest.BadRequest(http.StatusRequestTimeout, "The body of the request stopped coming.")
	default:
		return rest.BadRequest(http.StatusBadRequest, "The body of the request broke off.")
	}
}

// uploaded remembers why a body ended early: nobody else is to blame then.
type uploaded struct {
	io.Reader
	err error
}

func (u *uploaded) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = err
	}
	return n, err
}

// maxFormFiles is how many files one form may have; an archive may have more.
const maxFormFiles = 1000

func (h fileRoutes) uploadFiles(r *http.Request, c rest.Call[rest.None]) (client.UploadedFiles, error) {
	answer := client.UploadedFiles{Files: []client.File{}}
	mode, err := modeOf(c.Query.Text("mode"))
	if err != nil {
		return answer, err
	}
	mediaType, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != rest.MediaForm || parameters["boundary"] == "" {
		return answer, rest.BadRequest(http.StatusUnsupportedMediaType, "The body must be multipart/form-data with a boundary, as curl -F sends it.")
	}
	err = upload(h.instances, r, c, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string, content io.Reader) error {
		return eachFile(multipart.NewReader(content, parameters["boundary"]), func(name string, content io.Reader) error {
			info, err := files.WriteFile(ctx, sdk.WriteFileRequest{
				InstanceID: instanceID, Path: path.Join(directoryOf(c), name), Mode: mode, MakeParents: true,
			}, content)
			if err == nil {
				answer.Files = append(answer.Files, fileOf(info))
			}
			return err
		})
	})
	return answer, err
}

// eachFile calls take for the files of a form, one after the other.
func eachFile(form *multipart.Reader, take func(name string, content io.Reader) error) error {
	for n := 0; ; n++ {
		part, err := form.NextRawPart() // a transfer encoding is no part of a file
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has no file")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return badForm(err)
		case n == maxFormFiles:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has more than %d files; send an archive", maxFormFiles)
		}
		name, err := filenameOf(part)
		if err != nil {
			return err
		}
		if err := take(name, formContent{part}); err != nil {
			return err
		}
	}
}

// filenameOf is the whole filename: multipart's own would cut its directories off.
func filenameOf(part *multipart.Part) (string, error) {
	_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name := parameters["filename"]
	switch {
	case err != nil || name == "":
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "the part %.100q has no filename: each part must be a file", part.FormName())
	case path.IsAbs(name), name == "..", strings.HasPrefix(name, "../"), strings.HasSuffix(name, "/.."), strings.Contains(name, "/../"), path.Clean(name) == ".":
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "the filename %.100q must be relative, without ..", name)
	default:
		return name, nil
	}
}

// formContent is one file of a form.
type formContent struct{ io.Reader }

// Read implements io.Reader.
func (f formContent) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = badForm(err)
	}
	return n, err
}

// badForm puts into words that a form ends before its end. What a body that broke off
// is told, upload knows.
func badForm(err error) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is no whole form: %w", err)
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

// transferStall is how long nothing may move between a client and a provider. A
// client that stalls is noticed sooner, by its connection; this is for providers.
const transferStall = 2 * time.Minute

// transferChunk is how much of a transfer is held at once.
const transferChunk = 128 << 10

var errStalled = errors.New("the transfer stalls")

// patience ends a transfer that has no deadline when nothing moves any more. An
// instance is not destroyed while it is used.
type patience struct {
	ctx   context.Context
	end   func()
	timer *time.Timer
}

// newPatience returns a context for the provider's call. The caller must call end.
func newPatience(ctx context.Context) (context.Context, *patience) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(transferStall, func() { cancel(errStalled) })
	p := &patience{ctx: ctx, timer: timer, end: func() {
		timer.Stop()
		cancel(nil)
	}}
	return ctx, p
}

// explain puts the end of patience into words.
func (p *patience) explain(err error) error {
	if err != nil && errors.Is(context.Cause(p.ctx), errStalled) {
		return sdk.Errorf(sdk.CodeUnavailable, "%w: nothing moved for %s", errStalled, transferStall)
	}
	return err
}

// reading returns a reader that counts as movement.
func (p *patience) reading(from io.Reader) io.Reader { return &movingReader{p, from} }

type movingReader struct {
	patience *patience
	from     io.Reader
}

func (m *movingReader) Read(b []byte) (int, error) {
	m.patience.timer.Reset(transferStall)
	n, err := m.from.Read(b)
	m.patience.timer.Reset(transferStall)
	return n, err
}

// send copies all of it, in large pieces.
func (p *patience) send(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{p.reading(from)}, make([]byte, transferChunk))
	return p.explain(err)
}

// unsatisfiable refuses a range that begins behind the end of a file.
func unsatisfiable(size int64) error {
	e := rest.BadRequest(http.StatusRequestedRangeNotSatisfiable, fmt.Sprintf("The range begins behind the end of the file, which has %d bytes.", size))
	e.Headers = map[string]string{"Content-Range": fmt.Sprintf("bytes */%d", size)}
	return e
}
