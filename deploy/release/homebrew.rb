# A formula for a tap of Homebrew on Linux. `cargo run -p image --bin release` fills it in. It has been read by ruby at most, and
# installed by no brew yet.
class Soloist < Formula
  desc "Keeps exactly one copy of a program running across replicas"
  homepage "{{homepage}}"
  url "{{url}}"
  version "{{version}}"
  sha256 "{{sha256}}"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on arch: :x86_64
  depends_on :linux

  def install
    bin.install "soloist"
    man1.install Dir["man/man1/*.1"]
    generate_completions_from_executable(bin/"soloist", "completions")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/soloist --version")
    system bin/"soloist", "run", "--once", "--store", "file:#{testpath}/lease/test", "--", "true"
  end
end
