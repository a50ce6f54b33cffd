package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"reflect"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	mediaBytes = "application/octet-stream"
	mediaTar   = "application/x-tar"
)

// fileStreams are the routes whose bodies are files.
func (s *Server) fileStreams() {
	stream(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}/files/content", id: "readFile", tag: tagFiles,
		summary: "Read a file",
		details: "Takes one range of bytes in the header Range. A file that becomes shorter meanwhile cuts the connection; what it grows by is not sent.",
		query:   []parameter{pathParameterOf("The file; symbolic links are followed as long as they stay where files can be.")},
		success: []int{http.StatusOK, http.StatusPartialContent}, codes: fileCodes(), produces: mediaBytes,
	}, s.readFile)
	receive(s, operation{
		method: http.MethodPut, path: "/api/v1/instances/{id}/files/content", id: "writeFile", tag: tagFiles,
		summary: "Write a file",
		details: "The body is the content. The file appears whole, in place of what was there, when all of it has come; else everything stays as it was.",
		query: []parameter{
			pathParameterOf("The file."),
			{name: "mode", doc: "Permission bits, octal. Unless given, those of the file that is replaced, 0644 for a new one."},
			{name: "parents", kind: booleanParameter, doc: "Make directories that are missing."},
		},
		success: []int{http.StatusOK}, codes: fileCodes(), consumes: mediaBytes,
	}, s.writeFile)
	stream(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}/archive", id: "readArchive", tag: tagFiles,
		summary: "Read many files as a tar stream",
		details: "By names relative to the directory, without compression. Symbolic links come as such; sockets, pipes and devices are left out. A failure under way cuts the connection.",
		query: []parameter{
			{name: "directory", doc: "What to archive; /workspace unless given."},
			{name: "paths", multiple: true, doc: "Only this file or directory below it. It may be given several times."},
		},
		success: []int{http.StatusOK}, codes: fileCodes(), produces: mediaTar,
	}, s.readArchive)
	receive(s, operation{
		method: http.MethodPut, path: "/api/v1/instances/{id}/archive", id: "writeArchive", tag: tagFiles,
		summary: "Write many files from a tar stream",
		details: "Takes files, directories and symbolic links, without compression or in gzip, and puts them over what is there. An entry with an absolute name, with .., that is a hard link, a device or a sparse file, or that leads through a symbolic link is refused, and ends the call there: what came before it stays.",
		query:   []parameter{{name: "directory", doc: "Where to unpack; /workspace unless given. It must exist."}},
		success: []int{http.StatusOK}, codes: fileCodes(), consumes: mediaTar,
	}, s.writeArchive)
	s.formRoutes()
}

// receive binds a handler whose request is a stream and whose answer is not.
func receive[Out any](s *Server, op operation, handle func(r *http.Request, c call[none]) (Out, error)) {
	s.document.add(op, nil, reflect.TypeFor[Out](), nil)
	s.holding = append(s.holding, newPathPattern(op))
	bind(s, op, func(c *fiber.Ctx, request call[none]) error {
		return s.handOver(c, func(w http.ResponseWriter, r *http.Request) error {
			if r.Header.Get("Content-Range") != "" {
				return &requestError{status: http.StatusBadRequest, detail: "A part of a file cannot be written: there must be no Content-Range."}
			}
			encoding := r.Header.Get("Content-Encoding")
			if plain := encoding == "" || encoding == "identity"; !plain && (encoding != "gzip" || op.consumes != mediaTar) {
				return &requestError{status: http.StatusUnsupportedMediaType, detail: "The body must not be compressed."}
			}
			answer, err := handle(r, request)
			if err != nil {
				return err
			}
			body, err := encode(answer)
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", "application/json")
			_, err = w.Write(body)
			return err
		})
	})
}

func (s *Server) writeFile(r *http.Request, c call[none]) (File, error) {
	mode, err := modeOf(c.query.text("mode"))
	if err != nil {
		return File{}, err
	}
	var file File
	err = upload(s, r, c, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string, content io.Reader) error {
		info, err := files.WriteFile(ctx, sdk.WriteFileRequest{
			InstanceID: instanceID, Path: c.query.text("path"), Mode: mode, MakeParents: c.query.boolean("parents"),
		}, content)
		file = fileOf(info)
		return err
	})
	return file, err
}

func (s *Server) writeArchive(r *http.Request, c call[none]) (ArchiveSummary, error) {
	var summary ArchiveSummary
	err := upload(s, r, c, sdk.CapabilityArchives, func(ctx context.Context, archives sdk.Archiver, instanceID string, content io.Reader) error {
		written, err := archives.WriteArchive(ctx, instanceID, directoryOf(c), archiveContent(content))
		summary = ArchiveSummary{Files: written.Files, Bytes: written.Bytes}
		return err
	})
	return summary, err
}

func directoryOf(c call[none]) string {
	if directory := c.query.text("directory"); directory != "" {
		return directory
	}
	return workspace
}

func (s *Server) readArchive(w http.ResponseWriter, r *http.Request, c call[none]) error {
	return leased(r.Context(), s, c.tenant, c.id, sdk.CapabilityArchives, func(ctx context.Context, archives sdk.Archiver, instanceID string) error {
		ctx, p := newPatience(ctx)
		defer p.end()
		content, err := archives.ReadArchive(ctx, sdk.ReadArchiveRequest{InstanceID: instanceID, Directory: directoryOf(c), Paths: c.query.all("paths")})
		if err != nil {
			return p.explain(err)
		}
		defer content.Close()
		download(w, mediaTar, path.Base(directoryOf(c))+".tar")
		if r.Method == http.MethodHead {
			return nil
		}
		return p.send(w, content)
	})
}

func (s *Server) readFile(w http.ResponseWriter, r *http.Request, c call[none]) error {
	part := byteRange{}
	if r.Header.Get("If-Range") == "" { // the whole file is right in any case
		part = parseRange(r.Header.Get("Range"))
	}
	return leased(r.Context(), s, c.tenant, c.id, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		ctx, p := newPatience(ctx)
		defer p.end()
		info, content, err := files.ReadFile(ctx, sdk.ReadFileRequest{
			InstanceID: instanceID, Path: c.query.text("path"), Offset: part.offset, Length: part.length,
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
			return &unsatisfiableRange{info.Size}
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
func upload[T any](s *Server, r *http.Request, c call[none], capability sdk.Capability, write func(ctx context.Context, provider T, instanceID string, content io.Reader) error) error {
	body := &uploaded{Reader: r.Body}
	err := leased(r.Context(), s, c.tenant, c.id, capability, func(ctx context.Context, provider T, instanceID string) error {
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
		return &requestError{status: http.StatusRequestTimeout, detail: "The body of the request stopped coming."}
	default:
		return &requestError{status: http.StatusBadRequest, detail: "The body of the request broke off."}
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
