package artifacts

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// File is a file of the workspace.
type File struct {
	MIMEType string
	Size     int64
	Data     []byte
}

// Read reads a regular file of at most limit bytes. Its error is a sentence
// without a subject, and File.Size is set where the size is the reason.
func Read(workspace, name string, limit int64) (File, error) {
	name, err := relative(workspace, name)
	if err != nil {
		return File{}, err
	}
	dir, err := descend(workspace, path.Dir(name))
	if err != nil {
		return File{}, unreadable(err)
	}
	defer dir.Close()
	f, err := open(dir, path.Base(name), 0)
	if err != nil {
		return File{}, unreadable(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return File{}, errors.New("cannot be read")
	case info.IsDir():
		return File{}, errors.New("is a directory")
	case !info.Mode().IsRegular():
		return File{}, errors.New("is no regular file")
	case info.Size() > limit:
		return File{Size: info.Size(), MIMEType: typeOf(name, nil)}, fmt.Errorf("is larger than %d bytes", limit)
	}
	// It may grow while it is read: what it had when it was opened is enough.
	data, err := io.ReadAll(io.LimitReader(f, info.Size()))
	if err != nil {
		return File{}, errors.New("cannot be read")
	}
	return File{MIMEType: typeOf(name, data), Size: int64(len(data)), Data: data}, nil
}

func unreadable(err error) error {
	switch {
	case isLink(err):
		return errors.New("is a symbolic link, or behind one, which is not followed")
	case errors.Is(err, unix.ENOENT):
		return errors.New("does not exist")
	case errors.Is(err, unix.ENOTDIR):
		return errors.New("is behind something that is no directory; symbolic links are not followed")
	case errors.Is(err, unix.ENXIO):
		return errors.New("is no regular file")
	case errors.Is(err, unix.ENAMETOOLONG):
		return errors.New("has a name that is too long")
	default:
		return errors.New("cannot be read")
	}
}

// types are of what such files usually are. The standard library's table would
// read large files of the system, and hold them in the memory of each sandbox.
var types = map[string]string{
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown",
	".py": "text/x-python", ".js": "text/javascript", ".html": "text/html", ".css": "text/css", ".xml": "application/xml",
	".json": "application/json", ".jsonl": "application/jsonl", ".yaml": "application/yaml", ".yml": "application/yaml",
	".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar",
	".parquet": "application/vnd.apache.parquet", ".wav": "audio/wav", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}

func typeOf(name string, data []byte) string {
	if t, known := types[strings.ToLower(path.Ext(name))]; known {
		return t
	}
	if data == nil {
		return "application/octet-stream"
	}
	t, _, _ := strings.Cut(http.DetectContentType(data), ";")
	return t
}
