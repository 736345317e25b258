"""A connection to a private server: a client's process, whose answer to each piece is read before the
next one is sent."""
import subprocess

from servers import Problem

GONE = ("ERROR 2002", "ERROR 2006", "ERROR 2013", "ERROR 2026")


class Gone(Exception):
    """The server is, or it has ended the connection."""


class Connection:
    def __init__(self, socket, options=()):
        command = ["mariadb", "--no-defaults", "--socket=" + socket, "-uroot", "--batch", "--unbuffered",
                   "--skip-column-names", "--skip-reconnect", "--force", "--database=test", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, bufsize=1)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.end()

    def run(self, statements):
        """The lines that came; an error of a statement is one of them."""
        try:
            self.process.stdin.write(statements + ";\nselect '--done--';\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Gone() from None
        lines = []
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if line == "--done--":
                return lines
            if line.startswith(GONE):
                break
            lines.append(line)
        raise Gone()

    def do(self, statements):
        """Statements that print nothing; anything they print ends the test."""
        lines = self.run(statements)
        if lines:
            raise Problem("client: %s: %s" % (statements, lines))

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait()
