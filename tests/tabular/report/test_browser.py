"""Pages as a browser shows them."""

import re
import shutil
import subprocess
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


# Texts of figures that touch each other or leave their figure, and how wide the page is.
LOOK = """<script>
const wrong = [];
for (const figure of document.querySelectorAll("figure svg")) {
  const edge = figure.getBoundingClientRect();
  const boxes = [...figure.querySelectorAll("text")].map((one) => {
    const box = one.getBoundingClientRect();
    return {name: one.textContent, l: box.left, r: box.right, t: box.top, b: box.bottom};
  });
  boxes.forEach((one, at) => {
    if (one.l < edge.left - 3 || one.r > edge.right + 3 || one.t < edge.top - 3
        || one.b > edge.bottom + 3) wrong.push(one.name + " leaves");
    for (const two of boxes.slice(at + 1))
      if (one.l + 1 < two.r && two.l + 1 < one.r && one.t + 3 < two.b && two.t + 3 < one.b)
        wrong.push(one.name + " touches " + two.name);
  });
}
const root = document.documentElement;
document.title = "seen:" + JSON.stringify({wrong, wide: root.scrollWidth > innerWidth});
</script>"""


def browse(page: Path, folder: Path, *options: str) -> str:
    assert CHROMIUM
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", *options,
        page.as_uri(),
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    ("page", "size"),
    [
        ("regression_page", "400,900"),
        ("regression_page", "1200,900"),
        ("classification_page", "400,900"),
        ("wide_page", "400,900"),
        ("crowded_page", "400,900"),
    ],
)
def test_a_browser_shows_all_texts_apart_and_none_beside_the_page(page, size, request, tmp_path):
    path = tmp_path / "page.html"
    text = request.getfixturevalue(page).replace("</body>", f"{LOOK}</body>")
    path.write_text(text, encoding="utf-8")
    shown = browse(path, tmp_path, f"--window-size={size}", "--dump-dom")
    assert "<h2" in shown
    assert 'title>seen:{"wrong":[],"wide":false}' in shown, re.findall("<title>.*?</title>", shown)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_paints_light_and_dark(regression_page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(regression_page, encoding="utf-8")
    shades = {}
    for name, scheme in (("dark", 0), ("light", 1)):
        picture = tmp_path / f"{name}.png"
        setting = f"--blink-settings=preferredColorScheme={scheme}"
        browse(path, tmp_path, setting, "--window-size=800,1200", f"--screenshot={picture}")
        image = mpl.image.imread(picture)[..., :3]
        assert image.std() > 0.05  # not blank
        shades[name] = float(np.median(image))
    assert shades["dark"] < 0.2
    assert shades["light"] > 0.95
