//! Each `*.zh.md` is the document beside it in Chinese: the same headings in the same order, and under each the same
//! tables, lists and code.

use super::source::{File, assert_complaints, files, no_complaints, read};

/// End of the path of a translation; the original's ends with `.md` in its place.
const TRANSLATED: &str = ".zh.md";

/// Parts under a heading, in numbers; and its code, which is the same in every language.
#[derive(Debug, Default, PartialEq, Eq)]
struct Section {
    level: usize,
    /// The heading in English.
    title: String,
    table_rows: usize,
    list_items: usize,
    /// Lines of fenced blocks, without comments.
    code: Vec<String>,
}

#[test]
fn translations_keep_step() {
    let files = files();
    let translations = files.iter().filter_map(|file| {
        let original = file.path.strip_suffix(TRANSLATED)?;
        Some((read(&format!("{original}.md")), file))
    });
    let translations: Vec<_> = translations.collect();
    assert!(translations.iter().any(|(_, file)| file.path == "README.zh.md"));
    no_complaints(
        translations.iter().flat_map(|(original, file)| differences(original, file)).collect(),
    );
}

/// A translated heading names the English one: `## 许可证 <!-- Licence -->`.
fn translated_title(heading: &str) -> &str {
    let comment = heading.split_once("<!-- ").and_then(|(_, rest)| rest.split_once(" -->"));
    comment.map_or(heading, |(title, _)| title)
}

fn sections<'a>(file: &'a File, title_of: impl Fn(&'a str) -> &'a str) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut fenced = false;
    for line in file.text.lines() {
        let section = sections.last_mut().expect("there is one from the start");
        let starts = line.trim_start();
        if starts.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let code = line.split(" # ").next().unwrap_or_default().trim_end();
            if !code.is_empty() && !code.starts_with('#') {
                section.code.push(code.to_owned());
            }
        } else if line.starts_with('#') {
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            let title = title_of(line[level..].trim()).to_owned();
            sections.push(Section { level, title, ..Section::default() });
        } else {
            section.table_rows += usize::from(starts.starts_with('|'));
            section.list_items += usize::from(starts.starts_with("* "));
        }
    }
    sections
}

fn differences(original: &File, translation: &File) -> Vec<String> {
    let (original, path) = (sections(original, |title| title), &translation.path);
    let translated = sections(translation, translated_title);
    let outline = |sections: &[Section]| -> Vec<String> {
        sections.iter().map(|section| format!("{} {}", section.level, section.title)).collect()
    };
    let expected = outline(&original);
    let found = outline(&translated);
    if expected != found {
        let at = expected.iter().zip(&found).position(|(a, b)| a != b);
        let at = at.unwrap_or(expected.len().min(found.len()));
        let name = |outline: &[String]| outline.get(at).cloned().unwrap_or("nothing".into());
        return vec![format!(
            "{path}: its headings differ from the original's: where that has `{}` it has `{}`; a translated heading ends with <!-- the English one -->",
            name(&expected),
            name(&found)
        )];
    }
    let pairs =
        original.iter().zip(&translated).filter(|(original, translated)| original != translated);
    pairs
        .map(|(original, translated)| {
            format!(
                "{path}: under `{}` it differs in rows, items or code: {original:?} {translated:?}",
                original.title
            )
        })
        .collect()
}

#[test]
fn the_checker_sees_what_has_not_been_translated() {
    let file = |text: &str| File { path: "zh.md".to_owned(), text: text.to_owned() };
    let original = file("# A\n\n## B\n| a |\n|---|\n\n* x\n```sh\nmake run   # go\n```\n## C\n");
    let good = "# 甲 <!-- A -->\n## 乙 <!-- B -->\n| 一 |\n|---|\n* 二\n```sh\n# 说明\nmake run  # 走\n```\n## 丙 <!-- C -->\n";
    assert_complaints(&differences(&original, &file(good)), &[]);
    for (from, to, complaint) in [
        ("## 丙 <!-- C -->\n", "", "`2 C` it has `nothing`"),
        ("<!-- C -->", "", "`2 C` it has `2 丙`"),
        ("## 乙", "### 乙", "`2 B` it has `3 B`"),
        ("* 二\n", "", "under `B`"),
        ("| 一 |\n", "", "under `B`"),
        ("make run", "make test", "under `B`"),
    ] {
        let changed = good.replace(from, to);
        assert_complaints(&differences(&original, &file(&changed)), &[complaint]);
    }
}
