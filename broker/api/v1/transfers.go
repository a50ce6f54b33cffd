package v1

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// registerTransfers registers the routes whose bodies are files.
func (h fileRoutes) registerTransfers(a *rest.API) {
	rest.Stream(a, rest.Operation{
		Method: http.MethodGet, Path: h.of.path + "/files/content", ID: h.of.operation("readFile"), Tag: tagFiles,
		Summary: "Read a file",
		Details: "Takes one range of bytes in the header Range. A file that becomes shorter meanwhile cuts the connection; what it grows by is not sent.",
		Query:   []rest.Parameter{h.of.pathParameter("The file; symbolic links are followed as long as they stay where files can be.")},
		Success: []int{http.StatusOK, http.StatusPartialContent}, Codes: fileCodes(), Produces: lending.MediaBytes,
	}, h.readFile)
	rest.Receive(a, rest.Operation{
		Method: http.MethodPut, Path: h.of.path + "/files/content", ID: h.of.operation("writeFile"), Tag: tagFiles,
		Summary: "Write a file",
		Details: "The body is the content. The file appears whole, in place of what was there, when all of it has come; else everything stays as it was.",
		Query: []rest.Parameter{
			h.of.pathParameter("The file."),
			{Name: "mode", Doc: "Permission bits, octal. Unless given, those of the file that is replaced, 0644 for a new one."},
			{Name: "parents", Kind: rest.Boolean, Doc: "Make directories that are missing."},
		},
		Success: []int{http.StatusOK}, Codes: fileCodes(), Consumes: lending.MediaBytes,
	}, h.writeFile)
	rest.Stream(a, rest.Operation{
		Method: http.MethodGet, Path: h.of.path + "/archive", ID: h.of.operation("readArchive"), Tag: tagFiles,
		Summary: "Read many files as a tar stream",
		Details: "By names relative to the directory, without compression. Symbolic links come as such; sockets, pipes and devices are left out. A failure under way cuts the connection.",
		Query: []rest.Parameter{
			{Name: "directory", Doc: h.of.doc("What to archive; /workspace unless given.")},
			{Name: "paths", Multiple: true, Doc: "Only this file or directory below it. It may be given several times."},
		},
		Success: []int{http.StatusOK}, Codes: fileCodes(), Produces: rest.MediaTar,
	}, h.readArchive)
	rest.Receive(a, rest.Operation{
		Method: http.MethodPut, Path: h.of.path + "/archive", ID: h.of.operation("writeArchive"), Tag: tagFiles,
		Summary: "Write many files from a tar stream",
		Details: "Takes files, directories and symbolic links, without compression or in gzip, and puts them over what is there. An entry with an absolute name, with .., that is a hard link, a device or a sparse file, or that leads through a symbolic link is refused, and ends the call there: what came before it stays.",
		Query:   []rest.Parameter{{Name: "directory", Doc: h.of.doc("Where to unpack; /workspace unless given. It must exist.")}},
		Success: []int{http.StatusOK}, Codes: fileCodes(), Consumes: rest.MediaTar,
	}, h.writeArchive)
	rest.Receive(a, rest.Operation{
		Method: http.MethodPost, Path: h.of.path + "/files", ID: h.of.operation("uploadFiles"), Tag: tagFiles,
		Summary: "Write files from a form",
		Details: "The body is multipart/form-data; each part is a file, stored under its filename below the directory, in place of what is there. A filename may have directories, which are made; it may not be absolute or have .. in it. Each file appears whole or not at all. If one fails, those before it are written.",
		Query: []rest.Parameter{
			{Name: "directory", Doc: h.of.doc("Where to put them; /workspace unless given.")},
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
	info, err := lending.WriteFile(r.Context(), h.instances, c.Tenant, c.Path[h.of.parameter], sdk.WriteFileRequest{
		Path: c.Query.Text("path"), Mode: mode, MakeParents: c.Query.Boolean("parents"),
	}, r.Body)
	return fileOf(info), err
}

func (h fileRoutes) writeArchive(r *http.Request, c rest.Call[rest.None]) (client.ArchiveSummary, error) {
	var summary client.ArchiveSummary
	err := lending.Upload(r.Context(), h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityArchives, r.Body, func(ctx context.Context, archives sdk.Archiver, instanceID string, content io.Reader) error {
		written, err := archives.WriteArchive(ctx, instanceID, h.directoryOf(c), archiveContent(content))
		summary = client.ArchiveSummary{Files: written.Files, Bytes: written.Bytes}
		return err
	})
	return summary, err
}

func (h fileRoutes) directoryOf(c rest.Call[rest.None]) string {
	if directory := c.Query.Text("directory"); directory != "" {
		return directory
	}
	return h.of.root
}

func (h fileRoutes) readArchive(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	return lending.Download(r.Context(), h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityArchives, func(ctx context.Context, archives sdk.Archiver, instanceID string) (io.ReadCloser, error) {
		return archives.ReadArchive(ctx, sdk.ReadArchiveRequest{InstanceID: instanceID, Directory: h.directoryOf(c), Paths: c.Query.All("paths")})
	}, func(content io.Reader) error {
		lending.Attach(w, rest.MediaTar, path.Base(h.directoryOf(c))+".tar")
		if r.Method == http.MethodHead {
			return nil
		}
		return lending.Send(w, content)
	})
}

func (h fileRoutes) readFile(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	return lending.ServeFile(w, r, h.instances, c.Tenant, c.Path[h.of.parameter], c.Query.Text("path"))
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
	err = lending.Upload(r.Context(), h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFiles, r.Body, func(ctx context.Context, files sdk.Files, instanceID string, content io.Reader) error {
		return eachFile(multipart.NewReader(content, parameters["boundary"]), func(name string, content io.Reader) error {
			info, err := files.WriteFile(ctx, sdk.WriteFileRequest{
				InstanceID: instanceID, Path: path.Join(h.directoryOf(c), name), Mode: mode, MakeParents: true,
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
// is told, lending.Upload knows.
func badForm(err error) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is no whole form: %w", err)
}
